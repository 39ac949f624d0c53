"""`budget`: limits turns, tokens and cost. `ledger` keeps the sums of the day."""

from proxies.budget.proxy import Budget, BudgetLimits

__all__ = ["Budget", "BudgetLimits"]
