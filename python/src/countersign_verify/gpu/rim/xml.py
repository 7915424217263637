"""
Parses the XML that RIMs are written in (XML 1.0, Namespaces in XML 1.0), and refuses what they have no need of:
document types, entities of their own, processing instructions, CDATA sections.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ...common.checks import CheckFailure
from ...proto.bytes import EncodingError, from_utf8, is_longer

# The characters of XML 1.0: which are allowed, which make a name, and what references and line ends stand for.

# NCName (Namespaces in XML 1.0 §3), for names in the Basic Multilingual Plane: others would sort differently as UTF-16.
_NAME_START = (
    "A-Za-z_\\u00C0-\\u00D6\\u00D8-\\u00F6\\u00F8-\\u02FF\\u0370-\\u037D\\u037F-\\u1FFF\\u200C\\u200D"
    "\\u2070-\\u218F\\u2C00-\\u2FEF\\u3001-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFFD"
)
_NCNAME = f"[{_NAME_START}][{_NAME_START}0-9.\\u00B7\\u0300-\\u036F\\u203F\\u2040\\-]*"

# Char (XML 1.0 §2.2).
_NOT_CHAR = re.compile("[^\\t\\n\\r\\u0020-\\uD7FF\\uE000-\\uFFFD\\U00010000-\\U0010FFFF]")

_PREDEFINED = {"lt": "<", "gt": ">", "amp": "&", "apos": "'", "quot": '"'}
# `&#x10FFFF;` is the longest that is needed.
_MAX_REFERENCE_CHARACTERS = 10
_CHARACTER_REFERENCE = re.compile("#(?:([0-9]+)|x([0-9A-Fa-f]+))")
_LINE_END = re.compile("\r\n?")


def _normalized(source: str) -> str:
    """XML 1.0 §2.11: one LF for CR LF and for CR. @raises CheckFailure for what is not Char."""
    text = source.removeprefix("\ufeff")
    if _NOT_CHAR.search(text):
        raise malformed("a character that XML does not allow")
    return _LINE_END.sub("\n", text)


def _text_value(raw: str) -> str:
    """Character data between tags."""
    if "]]>" in raw:
        raise malformed("]]> in text")
    return _resolved(raw)


def _attribute_value(raw: str) -> str:
    """
    XML 1.0 §3.3.3 for attributes without a DTD: space for each white space character that is not a reference.
    """
    return _resolved(raw.replace("\t", " ").replace("\n", " "))


def _resolved(raw: str) -> str:
    at = raw.find("&")
    if at < 0:
        return raw
    out: list[str] = []
    start = 0
    while at >= 0:
        end = raw.find(";", at, at + 1 + _MAX_REFERENCE_CHARACTERS + 1)
        if end < 0:
            raise malformed("a reference does not end")
        out += (raw[start:at], _referred(raw[at + 1 : end]))
        start = end + 1
        at = raw.find("&", start)
    return "".join(out) + raw[start:]


def _referred(name: str) -> str:
    if name in _PREDEFINED:
        return _PREDEFINED[name]
    match = _CHARACTER_REFERENCE.fullmatch(name)
    if match is None:
        raise malformed("an entity that is not predefined")
    code = int(match[2], 16) if match[1] is None else int(match[1])
    if code > 0x10FFFF or _NOT_CHAR.match(chr(code)):
        raise malformed("a reference to no character")
    return chr(code)


# The elements of a parsed RIM and how to look things up in them.


@dataclass(frozen=True)
class Attribute:
    prefix: str
    local: str
    value: str
    namespace: str = ""
    """'' for an attribute without prefix: the default namespace does not apply to attributes."""


@dataclass(eq=False)
class Element:
    prefix: str
    local: str
    namespace: str
    attributes: Sequence[Attribute]
    """Namespace declarations are not among them."""
    scope: Mapping[str, str]
    """The namespaces in scope by prefix, '' being the default one; without `xml`."""
    children: list[Element | str] = field(default_factory=list)
    """Elements and text, comments left out and the text around them joined."""


XML_NAMESPACE = "http://www.w3.org/XML/1998/namespace"
_NOT_SPACE = re.compile("[^ \\t\\n\\r]")


def malformed(message: str) -> CheckFailure:
    """The RIM is malformed. `message` quotes nothing of it but names and numbers already checked."""
    return CheckFailure("rim_malformed", message)


def is_named(element: Element, namespace: str, local: str) -> bool:
    return element.namespace == namespace and element.local == local


def child_elements(element: Element) -> list[Element]:
    return [node for node in element.children if isinstance(node, Element)]


def only_elements(element: Element) -> list[Element]:
    """The child elements of an element that holds nothing else but space. @raises CheckFailure"""
    if any(isinstance(node, str) and _NOT_SPACE.search(node) for node in element.children):
        raise malformed(f"{element.local} holds text")
    return child_elements(element)


def only_text(element: Element) -> str:
    """The text of an element that holds nothing else. @raises CheckFailure"""
    texts = [node for node in element.children if isinstance(node, str)]
    if len(texts) < len(element.children):
        raise malformed(f"{element.local} holds elements")
    return "".join(texts)


def attribute(element: Element, local: str, namespace: str = "") -> str | None:
    found = (one.value for one in element.attributes if one.local == local and one.namespace == namespace)
    return next(found, None)


def descendants(element: Element) -> Iterator[Element]:
    """The elements at and below this one, in document order."""
    yield element
    for child in child_elements(element):
        yield from descendants(child)


# NVIDIA's RIMs take about 20 KiB, 70 elements of up to a dozen attributes, 5 levels and 7 namespaces.
_MAX_BYTES = 1024 * 1024
_MAX_ELEMENTS = 4096
_MAX_ATTRIBUTES = 64
_MAX_DEPTH = 16
_MAX_NAMESPACES = 32

_XMLNS_NAMESPACE = "http://www.w3.org/2000/xmlns/"
# Absolute, as Canonical XML §1.3 wants it, and ASCII, so that it sorts the same in every encoding.
_NAMESPACE_URI = re.compile("[A-Za-z][A-Za-z0-9+.-]*:[!-~]*")

_SPACE = "[ \\t\\n]"
_QNAME = f"(?:({_NCNAME}):)?({_NCNAME})"
_DECLARATION = re.compile(
    f"<\\?xml{_SPACE}+version{_SPACE}*={_SPACE}*(?:\"1\\.0\"|'1\\.0')"
    f"(?:{_SPACE}+encoding{_SPACE}*={_SPACE}*(?:\"utf-8\"|'utf-8'))?"
    f"(?:{_SPACE}+standalone{_SPACE}*={_SPACE}*(?:\"(?:yes|no)\"|'(?:yes|no)'))?{_SPACE}*\\?>",
    re.ASCII | re.IGNORECASE,
)
_START_TAG = re.compile(f"<{_QNAME}")
_ATTRIBUTE = re.compile(f"{_SPACE}+{_QNAME}{_SPACE}*={_SPACE}*(?:\"([^<\"]*)\"|'([^<']*)')")
_START_TAG_END = re.compile(f"{_SPACE}*(/?)>")
_END_TAG = re.compile(f"</{_QNAME}{_SPACE}*>")


def parse_xml(source: str | bytes) -> Element:
    """The root element. Nothing in it is trusted yet. @raises CheckFailure: rim_malformed"""
    return _Parser(_text(source)).document()


def _text(source: str | bytes) -> str:
    too_large = is_longer(source, _MAX_BYTES) if isinstance(source, str) else len(source) > _MAX_BYTES
    if too_large:
        raise malformed(f"larger than {_MAX_BYTES} bytes")
    try:
        return _normalized(source if isinstance(source, str) else from_utf8(source))
    except EncodingError as cause:
        raise malformed("not UTF-8") from cause


class _Parser:
    def __init__(self, source: str) -> None:
        self._source = source
        self._at = 0
        self._elements = 0
        self._open: list[Element] = []
        self._root: Element | None = None
        self._characters: list[str] = []
        """The text since the last tag, in the pieces between comments."""

    def document(self) -> Element:
        self._match(_DECLARATION)
        while self._at < len(self._source):
            tag = self._source.find("<", self._at)
            self._character_data(len(self._source) if tag < 0 else tag)
            if tag < 0:
                break
            if self._source.startswith("</", tag):
                self._end_tag()
            elif self._source.startswith("<!--", tag):
                self._comment()
            elif self._source.startswith("<!", tag):
                raise malformed("a document type or a CDATA section")
            elif self._source.startswith("<?", tag):
                raise malformed("a processing instruction")
            else:
                self._start_tag()
        if self._open:
            raise malformed("an element does not end")
        if self._root is None:
            raise malformed("no element")
        return self._root

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._source, self._at)
        if match is not None:
            self._at = match.end()
        return match

    def _demand(self, pattern: re.Pattern[str], otherwise: str) -> re.Match[str]:
        match = self._match(pattern)
        if match is None:
            raise malformed(otherwise)
        return match

    def _character_data(self, end: int) -> None:
        raw = self._source[self._at : end]
        self._at = end
        if self._open:
            if raw:
                self._characters.append(_text_value(raw))
        elif _NOT_SPACE.search(raw):
            raise malformed("text outside of the root element")

    def _comment(self) -> None:
        """
        Canonical XML without comments drops them, and so does this, so that what is read is what was digested.
        """
        dashes = self._source.find("--", self._at + 4)
        if dashes < 0 or not self._source.startswith("-->", dashes):
            raise malformed("a comment does not end, or holds --")
        self._at = dashes + 3

    def _start_tag(self) -> None:
        match = self._demand(_START_TAG, "a tag without a name")
        prefix, local = match[1] or "", match[2]
        self._elements += 1
        if self._elements > _MAX_ELEMENTS:
            raise malformed(f"more than {_MAX_ELEMENTS} elements")
        if len(self._open) == _MAX_DEPTH:
            raise malformed(f"deeper than {_MAX_DEPTH} elements")
        parent = self._open[-1] if self._open else None
        if parent is None and self._root is not None:
            raise malformed("a second root element")
        raw = self._attributes()
        scope = _in_scope(raw, {} if parent is None else parent.scope)
        namespace = _resolve(scope, prefix, scope.get("", ""))
        element = Element(prefix, local, namespace, _named(raw, scope), scope)
        if parent is None:
            self._root = element
        else:
            self._end_characters(parent)
            parent.children.append(element)
        if self._demand(_START_TAG_END, "a start tag does not end")[1] == "":
            self._open.append(element)

    def _attributes(self) -> list[Attribute]:
        """Without their namespaces."""
        found: list[Attribute] = []
        while (match := self._match(_ATTRIBUTE)) is not None:
            if len(found) == _MAX_ATTRIBUTES:
                raise malformed(f"more than {_MAX_ATTRIBUTES} attributes")
            value = match[4] if match[3] is None else match[3]
            found.append(Attribute(match[1] or "", match[2], _attribute_value(value)))
        return found

    def _end_tag(self) -> None:
        match = self._demand(_END_TAG, "an end tag is broken")
        element = self._open.pop() if self._open else None
        if element is None or element.local != match[2] or element.prefix != (match[1] or ""):
            raise malformed("an end tag without its start tag")
        self._end_characters(element)

    def _end_characters(self, element: Element) -> None:
        if self._characters:
            element.children.append("".join(self._characters))
            self._characters.clear()


def _is_declaration(one: Attribute) -> bool:
    return one.prefix == "xmlns" or (one.prefix == "" and one.local == "xmlns")


def _in_scope(raw: Sequence[Attribute], outer: Mapping[str, str]) -> Mapping[str, str]:
    """Namespaces in XML 1.0 §2 and §3: the parent's scope with this element's declarations."""
    declarations = [one for one in raw if _is_declaration(one)]
    if not declarations:
        return outer
    scope = dict(outer)
    own: set[str] = set()
    for one in declarations:
        declared = "" if one.prefix == "" else one.local
        if declared in own:
            raise malformed("a namespace is declared twice")
        own.add(declared)
        if declared in ("xml", "xmlns"):
            raise malformed("a reserved prefix is declared")
        if one.value == "" and declared != "":
            raise malformed("a prefix is bound to nothing")
        if one.value != "" and _NAMESPACE_URI.fullmatch(one.value) is None:
            raise malformed("a namespace is not an absolute URI")
        if one.value in (XML_NAMESPACE, _XMLNS_NAMESPACE):
            raise malformed("a reserved namespace is declared")
        scope[declared] = one.value
    if len(scope) > _MAX_NAMESPACES:
        raise malformed(f"more than {_MAX_NAMESPACES} namespaces")
    return scope


def _named(raw: Sequence[Attribute], scope: Mapping[str, str]) -> list[Attribute]:
    names: set[tuple[str, str]] = set()
    named = []
    for one in raw:
        if _is_declaration(one):
            continue
        namespace = _resolve(scope, one.prefix, "")
        if (namespace, one.local) in names:
            raise malformed("an attribute stands twice")
        names.add((namespace, one.local))
        named.append(Attribute(one.prefix, one.local, one.value, namespace))
    return named


def _resolve(scope: Mapping[str, str], prefix: str, unprefixed: str) -> str:
    if prefix == "":
        return unprefixed
    if prefix == "xml":
        return XML_NAMESPACE
    if prefix not in scope:
        raise malformed("a prefix is not declared")
    return scope[prefix]
