# SPDX-License-Identifier: GPL-2.0
"""Find the places in a C file where a small bug can be planted.

libclang parses the file with the flags of its build, so each place is a whole
statement, condition, operator or constant of a function. A bug is a list of
edits (start, end, new text) of the bytes of the file, each of which is a character
here. An edit keeps the number of lines, so that __LINE__ stays the same in the rest
of the file.
"""
import ctypes
import os
import re
import sys

from clang import cindex
from clang.cindex import CursorKind as Kind

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../lib'))
# pylint: disable=wrong-import-position
from csource import arguments, blank, closing

RULES = ('drop', 'negate', 'compare', 'constant', 'logic', 'return', 'swap',
         'lock', 'reference', 'barrier')

# No test can notice the loss of a message, a trace event or a check.
SILENT = re.compile(
    r'(pr|dev|ibdev|netdev|trace)_\w+|(WARN|BUG|BUILD_BUG)\w*|lockdep_\w+|'
    r'might_\w+|static_assert|cond_resched|mutex_destroy|verbs_(err|debug)\w*|'
    r'kunit_\w+|KUNIT_\w+|__context_unsafe|unreachable|assert|prefetch\w*')
CALL = re.compile(r'([A-Za-z_]\w*)\s*\(')
LOCK = re.compile(r'(\w+_)?(un)?lock(_irqsave|_irqrestore|_irq|_bh|_nested)?$|'
                  r'(down|up)_(read|write)$')
UNLOCK = re.compile(r'unlock|up_')
REFERENCE = re.compile(r'(\w+_)?(get|put|hold|tryget)$|(kref|refcount|percpu_ref)_'
                       r'(get|put|inc|dec|add|sub|kill)\w*|'
                       r'mm(get|put|grab|drop)$')
TAKES = re.compile(r'\w+_(tryget|get_not_zero|get_unless_zero|inc_not_zero)$')
# A fence; a grace period; an access that orders; the order of an access of C11; an
# atomic operation of the kernel that has a relaxed variant.
BARRIER = re.compile(r'''\b(?:
    (?P<fence>(?:(?:smp_|dma_|virt_)?[rw]?mb | smp_mb__\w+ | barrier | mmio_\w+ |
        smp_acquire__after_ctrl_dep | udma_\w*barrier | (?:__)?atomic_thread_fence |
        synchronize_\w*rcu\w* | keel_bar_order | keel_aperture_order)\s*\() |
    (?P<free>kv?free_rcu\s*\() |
    (?P<access>(?:smp_store_release | smp_load_acquire | smp_store_mb |
        clear_bit_unlock)\s*\() |
    (?P<order>(?:__ATOMIC_|memory_order_)(?!relaxed|RELAXED)\w+\b) |
    (?:atomic(?:64|_long)?_\w+_(?:acquire|release) |
        (?:atomic(?:64|_long)?_)?(?:try_)?c?m?p?xchg(?:64)?(?:_acquire|_release)? |
        atomic(?:64|_long)?_(?:fetch_(?:add|sub|and|or|xor|andnot|inc|dec) |
                               (?:add|sub|inc|dec)_return))\s*\(
)''', re.X)
COMPARE = {'<': '<=', '<=': '<', '>': '>=', '>=': '>', '==': '!=', '!=': '=='}
LOGIC = {'&&': '||', '||': '&&'}
CONTROL = {Kind.DECL_STMT, Kind.RETURN_STMT, Kind.IF_STMT, Kind.FOR_STMT,
           Kind.WHILE_STMT, Kind.SWITCH_STMT, Kind.GOTO_STMT, Kind.BREAK_STMT,
           Kind.CONTINUE_STMT, Kind.LABEL_STMT, Kind.CASE_STMT,
           Kind.DEFAULT_STMT, Kind.COMPOUND_STMT, Kind.NULL_STMT}


# Pairs whose order makes no difference: the kernel finds attributes by their number,
# and free() of glibc 2.33 and newer does not change errno.
ANY_ORDER = ((r'fill_attr_\w+\(.*\);', r'fill_attr_\w+\(.*\);'),
             (r'free\(\w+\);', r'errno = \w+;'))


def any_order(one, two):
    """Whether two statements are one of these pairs."""
    return any(re.fullmatch(a, one, re.S) and re.fullmatch(b, two, re.S)
               for a, b in ANY_ORDER)


def stores(one, two):
    """Whether a statement only sets what another statement does not use."""
    if re.search(r'\w\(', one):
        found = re.fullmatch(r'(?:\w+_init|INIT_\w+)\(&?([^,;]*)\);', one) or \
            re.fullmatch(r'refcount_set\(&([^,;]*), \d+\);', one)
    else:
        found = re.match(r'([^=]*\w)\s*=[^=]', one)
    return bool(found) and not re.search(
        r'(?<![\w.>])' + re.escape(found[1]) + r'(?!\w)', two)


class Finder:
    """The places of one file, as (rule, function, edits)."""

    def __init__(self, path, args):
        with open(path, encoding='latin-1', newline='') as file:
            self.text = file.read()
        self.bare = blank(self.text)
        self.found = {}
        self.conditions = set()
        self.function = ''
        unit = cindex.Index.create().parse(path, args=args + ['-Wno-everything'])
        self.errors = [str(d) for d in unit.diagnostics if d.severity >= 3]
        for cursor in unit.cursor.get_children():
            if cursor.kind == Kind.FUNCTION_DECL and cursor.is_definition() and \
                    cursor.location.file and cursor.location.file.name == path:
                self.function = cursor.spelling
                for child in cursor.get_children():
                    if child.kind == Kind.COMPOUND_STMT:
                        self.body(child)

    def span(self, cursor):
        """Offsets of a cursor in the file; of the use, if a macro made it."""
        out = []
        for place in (cursor.extent.start, cursor.extent.end):
            offset = ctypes.c_uint()
            cindex.conf.lib.clang_getFileLocation(
                place, None, None, None, ctypes.byref(offset))
            out.append(offset.value)
        return out[0], out[1]

    def add(self, rule, *edits):
        """Note a bug. Code of a macro may be found more than once."""
        whole = []
        for start, end, new in edits:
            lines = self.text.count('\n', start, end) - new.count('\n')
            whole.append((start, end, new + '\n' * lines))
        self.found.setdefault((tuple(whole)), (rule, self.function))

    def body(self, cursor):
        """Find the places of a function."""
        start, end = self.span(cursor)
        self.visit(cursor)
        self.guards(start, end)
        self.pairs(cursor)
        self.barriers(start, end)

    # --- by the tree ---------------------------------------------------------

    def visit(self, cursor):
        """Find the places of a cursor, and of the cursors below it."""
        children = list(cursor.get_children())
        kind = cursor.kind
        if kind == Kind.COMPOUND_STMT:
            self.statements(children)
        elif kind in (Kind.IF_STMT, Kind.WHILE_STMT) and children:
            self.condition(children[0])
            self.statements(children[1:], swap=False)
        elif kind == Kind.FOR_STMT:
            self.statements(children[-1:], swap=False)
        elif kind == Kind.CASE_STMT:
            self.statements(children[1:], swap=False)
            children = children[1:]
        elif kind == Kind.RETURN_STMT:
            self.result(cursor)
        elif kind == Kind.BINARY_OPERATOR and len(children) == 2:
            self.operator(cursor, children)
        elif kind == Kind.CALL_EXPR:
            self.taken(cursor)
        elif kind in (Kind.INTEGER_LITERAL, Kind.DECL_REF_EXPR):
            self.constant(cursor)
        for child in children:
            self.visit(child)

    def statement(self, cursor):
        """Offsets of an expression statement with its semicolon, or None."""
        if cursor.kind in CONTROL:
            return None
        start, end = self.span(cursor)
        after = re.compile(r'\s*;').match(self.bare, end)
        text = self.bare[start:end]
        if not after or not text or text.count('(') != text.count(')') or \
                ';' in text or not re.match(r'[A-Za-z_*(+-]', text):
            return None
        before = self.bare[:start].rstrip()[-1:]
        if before not in (';', '{', '}', ')', ':') and \
                not self.bare[:start].rstrip().endswith(('else', 'do')):
            return None
        call = CALL.match(text)
        if call and SILENT.fullmatch(call[1]) or text.startswith('(void)'):
            return None
        return start, after.end()

    def name(self, span):
        """The function that a statement calls, if it is a call."""
        call = CALL.match(self.bare, span[0])
        if call and closing(self.bare, call.end() - 1) >= span[1] - 2:
            return call[1]
        return ''

    def is_fence(self, span):
        """Whether a statement is a barrier only."""
        match = BARRIER.match(self.bare, span[0])
        return bool(match and match['fence'])

    def statements(self, cursors, swap=True):
        """Drop each statement, and swap neighbours."""
        last = None
        for cursor in cursors:
            span = self.statement(cursor)
            if span:
                name = self.name(span)
                if REFERENCE.match(name):
                    self.add('reference', (*span, ';'))
                elif not LOCK.match(name) and not name.startswith('guard') and \
                        not self.is_fence(span):
                    self.add('drop', (*span, ';'))
                if swap and last:
                    self.swap(last, span)
            last = span

    def swap(self, one, two):
        """Exchange two statements, unless it makes no difference."""
        first, second = self.text[slice(*one)], self.text[slice(*two)]
        if first != second and not any_order(first, second) and \
                not (stores(first, second) and stores(second, first)):
            moved = first.count('\n') - second.count('\n')
            self.found.setdefault(
                ((*one, second + '\n' * max(moved, 0)),
                 (*two, first + '\n' * max(-moved, 0))), ('swap', self.function))

    def condition(self, cursor):
        """Negate the condition of an if or a while."""
        start, end = self.span(cursor)
        if re.search(r'\b(if|while)\s*\(\s*$', self.bare[:start]) and \
                re.match(r'\s*\)', self.bare[end:]):
            self.conditions.add((start, end))
            self.add('negate', (start, end, '!(' + self.text[start:end] + ')'))

    def result(self, cursor):
        """Return success instead of an error."""
        start, end = self.span(cursor)
        text = self.bare[start:end]
        if re.fullmatch(r'return -E[A-Z0-9]+', text) or \
                re.fullmatch(r'return E[A-Z0-9]+', text):
            self.add('return', (start, end, 'return 0'))
        elif re.fullmatch(r'return ERR_PTR\(-E[A-Z0-9]+\)', text):
            self.add('return', (start, end, 'return NULL'))

    def operator(self, cursor, children):
        """Shift or negate a comparison; exchange && and ||."""
        left, right = self.span(children[0])[1], self.span(children[1])[0]
        found = re.fullmatch(r'[\s)]*([<>=!]=?|&&|\|\|)[\s(]*',
                             self.bare[left:right]) if left < right else None
        if not found:
            return
        old = found[1]
        new = COMPARE.get(old) or LOGIC.get(old)
        if old in ('==', '!=') and self.span(cursor) in self.conditions:
            return  # the same as negate
        if new:
            start = left + found.start(1)
            self.add('logic' if old in LOGIC else 'compare',
                     (start, start + len(old), new))

    def taken(self, cursor):
        """A reference that is taken if the object lives: do not take it."""
        start, end = self.span(cursor)
        call = CALL.match(self.bare, start)
        if call and TAKES.fullmatch(call[1]) and \
                closing(self.bare, call.end() - 1) == end:
            self.add('reference', (start, end, '(true)'))

    def constant(self, cursor):
        """Add one to a constant."""
        start, end = self.span(cursor)
        text = self.bare[start:end]
        if text == '1' and self.bare[:start].endswith('calloc('):
            return  # it only allocates more than it needs
        if re.fullmatch(r'0|[1-9][0-9]*', text):
            self.add('constant', (start, end, str(int(text) + 1)))
        elif re.fullmatch(r'[A-Z][A-Z0-9_]{3,}', text) and \
                not re.match(r'E[A-Z]+$|GFP_|NULL$|THIS_MODULE|HZ$', text):
            if cursor.kind == Kind.INTEGER_LITERAL or cursor.referenced and \
                    cursor.referenced.kind == Kind.ENUM_CONSTANT_DECL:
                self.add('constant', (start, end, '(' + text + ' + 1)'))

    # --- by the text ---------------------------------------------------------

    def guards(self, start, end):
        """Take out a lock that the compiler drops at the end of a block."""
        for match in re.finditer(r'\b(scoped_)?guard\(', self.bare[start:end]):
            at = start + match.start()
            stop = closing(self.bare, start + match.end() - 1)
            if not match[1]:
                stop = closing(self.bare, stop)
            self.add('lock', (at, stop, ''))

    def pairs(self, cursor):
        """Take out the calls that take and drop one lock."""
        locks = {}
        for inner in cursor.walk_preorder():
            span = self.statement(inner)
            name = self.name(span) if span else ''
            if not LOCK.match(name):
                continue
            at = self.bare.index('(', span[0])
            lock = arguments(self.bare, at + 1, closing(self.bare, at) - 1)[0]
            locks.setdefault(lock, {})[span] = bool(UNLOCK.search(name))
        for spans in locks.values():
            if set(spans.values()) == {False, True}:
                self.add('lock', *((*span, ';') for span in sorted(spans)))

    def barriers(self, start, end):
        """Take out a barrier, or weaken an access that is one."""
        for match in BARRIER.finditer(self.bare, start, end):
            at, stop, text = match.start(), match.end(), match[0]
            if match['fence']:
                self.add('barrier', (at, closing(self.bare, stop - 1), '(void)0'))
            elif match['free']:
                self.free(at, stop)
            elif match['access']:
                self.access(at, stop)
            elif match['order']:
                word = '__ATOMIC_RELAXED' if text[0] == '_' else 'memory_order_relaxed'
                self.add('barrier', (at, stop, word))
            else:
                plain = re.search(r'(?:_acquire|_release)?\s*\($', text)
                name = text[:plain.start()]
                weak = name if re.search(r'_(set|read)$', name) else name + '_relaxed'
                self.add('barrier', (at, stop, weak + '('))

    def free(self, at, stop):
        """Free without a grace period."""
        last = closing(self.bare, stop - 1)
        name = 'kvfree(' if self.text[at:].startswith('kv') else 'kfree('
        pointer = arguments(self.text, stop, last - 1)[0]
        self.add('barrier', (at, last, name + pointer + ')'))

    def access(self, at, stop):
        """Make an acquire or a release a plain marked access."""
        last = closing(self.bare, stop - 1)
        args = arguments(self.text, stop, last - 1)
        new = 'READ_ONCE(*(' + args[0] + '))'
        if self.text[at:].startswith('smp_store_mb'):
            new = 'WRITE_ONCE(' + args[0] + ', ' + args[1] + ')'
        elif self.text[at:].startswith('clear_bit_unlock'):
            new = 'clear_bit(' + ', '.join(args) + ')'
        elif len(args) == 2:
            new = 'WRITE_ONCE(*(' + args[0] + '), ' + args[1] + ')'
        self.add('barrier', (at, last, new))
