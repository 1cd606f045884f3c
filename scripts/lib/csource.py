# SPDX-License-Identifier: GPL-2.0
"""Read C sources in kernel style without a compiler: comments, calls, functions."""
import re

COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.S)
MACRO = re.compile(r'^#define (\w+)\((?:.*\\\n)*.*$', re.M)


def blank(text):
    """Return the text with spaces instead of comments and strings."""
    return COMMENT.sub(lambda match: re.sub(r'[^\n]', ' ', match[0]), text)


def closing(text, start):
    """Return the offset after the parenthesis that closes the one at start."""
    depth = 0
    for at in range(start, len(text)):
        depth += {'(': 1, ')': -1}.get(text[at], 0)
        if not depth:
            return at + 1
    return len(text)


def arguments(text, start, end):
    """Split the text between two parentheses at its outer commas."""
    depth, last, out = 0, start, []
    for at in range(start, end):
        depth += (text[at] in '([{') - (text[at] in ')]}')
        if text[at] == ',' and not depth:
            out.append(text[last:at].strip())
            last = at + 1
    return out + [text[last:end].strip()]


def bodies(text):
    """Yield the name of each function, its number of lines before the first brace,
    and the range of its lines from there.

    The text has no comments. The name is None if no function has the body, such
    as that of a structure.
    """
    text = MACRO.sub(lambda match: '\n' * match[0].count('\n'), text)
    head, inside = [], False
    for at, line in enumerate(text.splitlines()):
        if inside:
            if line.startswith('}'):
                name = re.search(r'(?:\bUVERBS_HANDLER\()?(\w+)\s*[()]', ' '.join(head))
                yield name[1] if name else None, len(head), range(first, at + 1)
                head, inside = [], False
        elif line.startswith('{'):
            first, inside = at, True
        elif line.startswith('#') or not line.strip() or \
                line.rstrip().endswith((';', '}')):
            head = []
        else:
            head.append(line)


def functions(text):
    """Return the bodies of functions and macros by name, and the other text."""
    text = blank(text)
    found = {match[1]: match[0] for match in MACRO.finditer(text)}
    lines = text.splitlines()
    plain = MACRO.sub(lambda match: '\n' * match[0].count('\n'), text).splitlines()
    for name, head, span in bodies(text):
        if name:
            # A function may exist once for each kind of kernel.
            body = lines[span.start:span.stop]
            found[name] = '\n'.join([found.get(name, ''), *body])
            plain[span.start - head:span.stop] = [''] * (head + len(span))
    return found, '\n'.join(plain)
