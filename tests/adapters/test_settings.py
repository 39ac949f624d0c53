from __future__ import annotations

from conductor.adapters.settings import adapter_settings
from conductor.chainfile.model import Adaptation, ComponentSpec


def test_a_proxy_that_the_chain_has_by_its_name_is_not_inserted_again():
    auto = Adaptation("auto")
    components = [ComponentSpec(name="a", use="notices"), ComponentSpec(name="b", run=("x",))]

    found = adapter_settings({"notices": auto, "journal": auto}, components)

    assert found == {"notices": Adaptation("never"), "journal": auto}
