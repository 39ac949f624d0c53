"""`context`: adds texts before the user's prompt. `parts` formats them and finds them in echoes."""

from proxies.context.proxy import PromptContext

__all__ = ["PromptContext"]
