"""The name of a client in its certificate."""

from __future__ import annotations

from itertools import combinations

import pytest

from conductor.server.client_certificate import (
    NoCertificateName,
    certificate_name,
    distinguished_name,
)

CN, O = "commonName", "organizationName"  # noqa: E741
SUBJECTS = [
    (((CN, "ann"),),),
    (((CN, "bob"),), ((CN, "ann"),)),
    (((CN, "ann"),), ((CN, "bob"),)),
    (((CN, "bob"), (CN, "ann")),),
    (((O, "x"),), ((CN, "ann"),)),
    (((O, "y"),), ((CN, "ann"),)),
    (((CN, "ann,O=x"),),),
    (((CN, "ann\\,O=x"),),),
    (((CN, "ann+O=x"),),),
    (((CN, "ann\0"),),),
    (((CN, "ann\\00"),),),
    (((CN, " ann"),),),
    (((CN, "ann "),),),
    (((CN, "\\20ann"),),),
    (((CN, "ANN"),),),
    (((CN, ""),),),
    (((CN, " "),),),
    (((CN, "  "),),),
    ((("1.2.3.4", "ann"),),),
    (((O, "x"),), ((CN, "ann, token bob"),)),
]


def test_two_subjects_have_two_names():
    for one, other in combinations(SUBJECTS, 2):
        assert distinguished_name(one) != distinguished_name(other)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        (SUBJECTS[4], "CN=ann,O=x"),
        (SUBJECTS[6], r"CN=ann\,O\=x"),
        (SUBJECTS[9], r"CN=ann\00"),
        (SUBJECTS[11], r"CN=\20ann"),
        (SUBJECTS[16], r"CN=\20"),
        (SUBJECTS[18], "1.2.3.4=ann"),
        ((((O, "x"), (CN, "ann")),), "CN=ann+O=x"),
        (((("countryName", "DE"),), ((CN, "Änne"),)), "CN=Änne,C=DE"),
    ],
)
def test_a_subject_is_written_as_rfc_4514_has_it(subject, name):
    assert distinguished_name(subject) == name


@pytest.mark.parametrize(
    ("kind", "name"),
    [("dns", "DNS:ann.example.org"), ("email", "email:Ann@example.org"), ("uri", "URI:spiffe://x")],
)
def test_an_alternative_name_may_be_the_name(kind, name):
    alternatives = (
        ("DNS", "Ann.example.org"),
        ("email", "Ann@example.org"),
        ("URI", "spiffe://x"),
        ("IP Address", "127.0.0.1"),
    )
    certificate = {"subject": SUBJECTS[0], "subjectAltName": alternatives}

    assert certificate_name(certificate, kind) == name


@pytest.mark.parametrize(
    ("certificate", "kind", "reason"),
    [
        ({}, "subject", "its subject is empty"),
        ({"subject": ()}, "subject", "its subject is empty"),
        ({"subject": SUBJECTS[0]}, "dns", "it has 0 alternative names of the type DNS"),
        ({"subjectAltName": (("DNS", "a"), ("DNS", "b"))}, "dns", "it has 2 alternative names"),
    ],
)
def test_a_certificate_without_a_usable_name_raises(certificate, kind, reason):
    with pytest.raises(NoCertificateName, match=reason):
        certificate_name(certificate, kind)
