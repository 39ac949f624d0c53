"""The principal's name in a client's certificate: the whole subject, or one alternative name. Pure.

Input: the dict of `ssl.SSLSocket.getpeercert`, verified by TLS. Output: a string that is equal for
two certificates only if the subject (or the alternative name) is equal. A part of the subject, such
as a common name, does not suffice: authorities verify each part by different rules, and a subject
may have several common names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, get_args

__all__ = ["NAME_KINDS", "NameKind", "NoCertificateName", "certificate_name", "distinguished_name"]

NameKind = Literal["subject", "dns", "email", "uri"]
NAME_KINDS: Final[tuple[NameKind, ...]] = get_args(NameKind)
"""Parts of a certificate that may hold the name."""

_ALTERNATIVE_NAME_TYPES: Final = {"dns": "DNS", "email": "email", "uri": "URI"}
"""Types of alternative names in `getpeercert`."""
_ATTRIBUTE_KEYWORDS: Final = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
"""RFC 4514 §3; other attributes keep their OpenSSL name or OID."""
_ESCAPED_CHARACTERS: Final = frozenset('"+,;<=>\\#')

_Subject = Iterable[Iterable[tuple[str, str]]]


class NoCertificateName(ValueError):
    """The certificate has no usable name."""


def certificate_name(certificate: Mapping[str, Any], kind: NameKind) -> str:
    """Name of the principal in a certificate. Raises `NoCertificateName`."""
    if kind == "subject":
        if not certificate.get("subject"):
            raise NoCertificateName("its subject is empty (see --client-name)")
        return distinguished_name(certificate["subject"])
    wanted = _ALTERNATIVE_NAME_TYPES[kind]
    names = [value for type, value in certificate.get("subjectAltName", ()) if type == wanted]
    if len(names) != 1:
        raise NoCertificateName(
            f"it has {len(names)} alternative names of the type {wanted} instead of one"
        )
    name = names[0].lower() if kind == "dns" else names[0]
    return f"{wanted}:{_escaped(name)}"


def distinguished_name(subject: _Subject) -> str:
    """A subject in the form of RFC 4514: the most specific part first, values escaped."""
    parts = [
        "+".join(
            sorted(
                f"{_ATTRIBUTE_KEYWORDS.get(type, type)}={_escaped(value)}" for type, value in part
            )
        )
        for part in subject
    ]
    return ",".join(reversed(parts))


def _escaped(value: str) -> str:
    inner = "".join(map(_escaped_character, value))
    if inner.endswith(" "):
        inner = inner[:-1] + "\\20"
    return "\\20" + inner[1:] if inner.startswith(" ") else inner


def _escaped_character(character: str) -> str:
    if character in _ESCAPED_CHARACTERS:
        return f"\\{character}"
    if not character.isprintable():
        return "".join(f"\\{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))
    return character
