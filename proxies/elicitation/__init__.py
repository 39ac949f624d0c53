"""`elicitation`: asks questions in a client without forms. `forms` makes choices and texts."""

from proxies.elicitation.proxy import Elicitation

__all__ = ["Elicitation"]
