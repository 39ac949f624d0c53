"""Methods of the protocol that name a session, from the schemas."""

from __future__ import annotations

import json
from pathlib import Path

SCHEMAS = Path(__file__).parents[2] / "conductor" / "schema" / "data"


def methods_with_session(version: int) -> list[str]:
    """What a client may send that names a session, in any state of the schema."""
    found = set()
    for path in SCHEMAS.glob(f"*/v{version}.json"):
        definitions = json.loads(path.read_text())["$defs"]
        for each in definitions.values():
            is_params = not each.get("title", "").endswith("Response")
            from_client = each.get("x-side") in ("agent", "both")
            if from_client and is_params and "sessionId" in each.get("properties", {}):
                found.add(each["x-method"])
    return sorted(found)
