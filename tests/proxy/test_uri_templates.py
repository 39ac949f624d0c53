from __future__ import annotations

import pytest
from mcp.shared.uri_template import InvalidUriTemplate, UriTemplate

from conductor.proxy.uri_templates import UriTemplateError, template_variables

VALID = [
    "notes://index",
    "notes://{name}",
    "notes://{name}/{page}",
    "file:///{+path}",
    "file://{/path*}",
    "notes://{name}{?lines,words}",
    "notes://{name}{?lines}{&words}",
    "notes://{name}{#part}",
]


@pytest.mark.parametrize("template", VALID)
def test_the_variables_are_those_that_the_sdk_finds(template):
    parsed = UriTemplate.parse(template)
    found = template_variables(template)

    assert list(found) == list(parsed.variable_names)
    assert {name for name, in_query in found.items() if in_query} == set(
        parsed.query_variable_names
    )


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("notes://{name", "unbalanced braces"),
        ("notes://{}", "'' is not a variable"),
        ("notes://{?}", "'' is not a variable"),
        ("notes://{a b}", "'a b' is not a variable"),
        ("notes://{name:3}", "'name:3' is not a variable"),
        ("notes://{?names*}", r"'names\*' is not a variable"),
        ("notes://{name}/{name}", "'name' occurs twice"),
    ],
)
def test_a_template_that_the_sdk_refuses_is_refused(template, problem):
    with pytest.raises(InvalidUriTemplate):
        UriTemplate.parse(template)
    with pytest.raises(UriTemplateError, match=problem):
        template_variables(template)


def test_a_closing_brace_alone_is_refused():
    with pytest.raises(UriTemplateError, match="unbalanced braces"):
        template_variables("notes://name}")
