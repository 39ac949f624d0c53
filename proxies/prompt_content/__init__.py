"""`prompt_content`: images and files for an agent that takes text. `blocks` converts, `files`
writes.
"""

from proxies.prompt_content.proxy import PromptContent

__all__ = ["PromptContent"]
