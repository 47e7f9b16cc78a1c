"""Code that the catalogue changes, with the answers that must stay, and code that it must leave alone."""

from __future__ import annotations

# name, source, what the new text must hold, calls whose answers must stay
FOUND: list[tuple[str, str, list[str], list[str]]] = [
    (
        "memoise",
        '''
        """Numbers."""

        LIMIT = 30


        # naive on purpose
        def fib(n: int) -> int:
            """Return a number."""
            if n < 2:  # the ends
                return n
            return fib(n - 1) + fib(n - 2)
        ''',
        ["import functools\n", "# naive on purpose\n@functools.cache\ndef fib(n: int) -> int:", "# the ends"],
        ["fib(0)", "fib(12)", "fib(-3)"],
    ),
    (
        "memoise",
        """
        def fib(n):
            if n < 2:
                return n
            return fib(n - 1) + fib(n - 2)
        """,
        ["@functools.lru_cache(maxsize=None, typed=True)"],  # 1 and 1.0 are not the same argument
        ["fib(10)", "fib(10.0)", "fib(True)", "fib(1.0)", "fib(1)"],
    ),
    (
        "memoise",
        """
        from functools import cache, reduce
        import math

        _COSTS = {"a": 1, "b": 2}

        def price(word: str, scale: float = 1.5) -> float:
            total = 0.0
            for letter in word.lower():
                total += _COSTS.get(letter, 3) * math.sqrt(scale)
            return total
        """,
        ["import functools\nimport math\n", "@functools.lru_cache(maxsize=None, typed=True)\ndef price"],
        ["price('Abc')", "price('', 2)", "price('abc', scale=-1)"],
    ),
    (
        "memoise",
        """
        class Grid:
            @staticmethod
            def paths(rows: int, columns: int) -> int:
                if not rows or not columns:
                    return 1
                return Grid.paths(rows - 1, columns) + sum(1 for _ in range(columns))

        def ways(key: tuple[int, ...]) -> int:
            return max(key[at] * at for at in range(len(key)))
        """,
        [
            "@functools.cache\ndef ways"
            if False
            else "@functools.lru_cache(maxsize=None, typed=True)\ndef ways"
        ],
        ["ways((1, 5, 2))", "ways(())"],
    ),
    (
        "memoise",
        """
        from dataclasses import dataclass

        @dataclass(frozen=True)
        class Point:
            x: int
            y: int

        def energy(point: Point, steps: int) -> int:
            best = 0
            for step in range(steps):
                best = max(best, point.x * step - point.y)
            return best
        """,
        ["@functools.lru_cache(maxsize=None, typed=True)\ndef energy"],
        ["energy(Point(2, 1), 5)", "energy(Point(2, 1), 5)", "energy(Point(0, 9), 0)"],
    ),
    (
        "seen_set",
        """
        def count_new(words: list[str]) -> int:
            seen: list[str] = []
            new = 0
            for word in words:
                if word not in seen:
                    seen.append(word)  # first time
                    new += 1
            return new
        """,
        ["seen: set[str] = set()", "seen.add(word)  # first time"],
        ["count_new([])", "count_new(['a', 'b', 'a', 'c'])"],
    ),
    (
        "seen_set",
        """
        def unique(text):
            kept = []
            for word in text.split():
                if word.lower() not in kept:
                    kept.append(word)
            return kept
        """,
        ["    kept_set = set(kept)\n", "        if word.lower() not in kept_set:", "kept_set.add(word)"],
        ["unique('a B b a B')", "unique('')"],
    ),
    (
        "list_to_set",
        """
        def common(left: list[str], right: list[str]) -> list[str]:
            # both of them
            return [item for item in left if item in right]
        """,
        [
            "    right_set = set(right)\n    # both of them\n    return [item for item in left if item in right_set]"
        ],
        ["common(['a', 'b', 'a'], ['a'])", "common([], [])"],
    ),
    (
        "list_to_set",
        """
        def hits(rows: list[tuple[int, str]], wanted: list[int]) -> int:
            n = 0
            for _ in range(2):
                for number, name in rows:
                    if number in wanted and name:
                        n += 1
            return n
        """,
        ["    wanted_set = set(wanted)\n    for _ in range(2):", "if number in wanted_set and name:"],
        ["hits([(1, 'a'), (2, ''), (3, 'c')], [1, 2, 3])"],
    ),
    (
        "constant_set",
        """
        STOP = ["a", "an", "the", "of"]  # common words

        def content(words):
            return [w for w in words if w.lower() not in STOP]
        """,
        [
            'STOP = ["a", "an", "the", "of"]  # common words\n_STOP_SET = frozenset(STOP)\n',
            "not in _STOP_SET",
        ],
        ["content(['The', 'cat'])"],
    ),
    (
        "constant_set",
        """
        def vowel(letter: str) -> bool:
            return letter in ["a", "e", "i", "o", "u"]
        """,
        ['in {"a", "e", "i", "o", "u"}'],
        ["vowel('a')", "vowel('z')"],
    ),
    (
        "constant_set",
        """
        def known(word: str) -> bool:
            return word not in (
                # the usual ones
                "a", "an",
                "the", "of",  # and so on
            )
        """,
        [
            'not in {\n        # the usual ones\n        "a", "an",\n        "the", "of",  # and so on\n    }\n'
        ],
        ["known('a')", "known('x')"],
    ),
    (
        "min_max",
        """
        def first(rows):
            return sorted(
                rows,
                key=lambda row: row[0],  # by number
            )[0]
        """,
        ["return min(\n        rows,\n        key=lambda row: row[0],  # by number\n    )\n"],
        ["first([(2, 1), (1, 2)])"],
    ),
    (
        "deque",
        """
        def order(graph, start):
            queue: list[int] = [start]
            seen = {start}
            found = []
            while queue:
                at = queue.pop(0)
                found.append(at)
                for other in graph[at]:
                    if other not in seen:
                        seen.add(other)
                        queue.append(other)
                if len(queue) > 9:
                    queue.insert(0, queue[-1])
            return found
        """,
        [
            "from collections import deque\n",
            "queue: deque[int] = deque([start])",
            "queue.popleft()",
            "queue.appendleft(queue[-1])",
        ],
        ["order({1: [2, 3], 2: [3], 3: [1]}, 1)"],
    ),
    (
        "count_once",
        """
        def shares(words: list[str]) -> dict[str, float]:
            found = {}
            for word in words:
                found[word] = words.count(word) / len(words)
            return found
        """,
        [
            "from collections import Counter\n",
            "    words_counts = Counter(words)\n    for word",
            "words_counts[word] /",
        ],
        ["shares(['a', 'b', 'a'])", "shares([])"],
    ),
    (
        "compile_regex",
        """
        import re


        def numbers(lines):
            found = []
            for line in lines:
                # the number
                match = re.match(r"no (\\d+)", line, flags=re.I | re.M)
                if match:
                    found.append(match.group(1))
            return found
        """,
        ['_NUMBERS_PATTERN = re.compile(r"no (\\d+)", re.I | re.M)\n\n\ndef', "_NUMBERS_PATTERN.match(line)"],
        ["numbers(['No 12', 'x', 'no 3 no 4'])"],
    ),
    (
        "compile_regex",
        """
        import re

        class Reader:
            def squeeze(self, text):
                return re.sub(r"\\s+", " ", text, 2)

        def squeeze(text):
            return Reader().squeeze(text)
        """,
        [
            '_READER_SQUEEZE_PATTERN = re.compile(r"\\s+")\n\nclass',
            '_READER_SQUEEZE_PATTERN.sub(" ", text, 2)',
        ],
        ["squeeze('a  b   c    d')"],
    ),
    (
        "hoist",
        """
        def matches(query: str, lines: list[str]) -> int:
            n = 0
            for line in lines:
                if query.lower() in line.lower():
                    n += 1
            return n
        """,
        ["    query_lower = query.lower()\n    for line in lines:", "if query_lower in line.lower():"],
        ["matches('A', ['abc', 'x', 'CA'])", "matches('A', [])"],
    ),
    (
        "hoist",
        """
        def above(values: list[float]) -> list[bool]:
            found = []
            at = 0
            while at < len(values):
                found.append(values[at] * len(values) > sum(values))
                at += 1
            return found
        """,
        ["    values_total = sum(values)\n    while"],
        ["above([1.0, 5.0, 2.0])", "above([])"],
    ),
    (
        "min_max",
        """
        def ends(items, words: list[str]):
            top = sorted(words, reverse=True)
            first = top[0]
            return sorted(items, key=lambda item: item[1])[0], first
        """,
        ["return min(items, key=lambda item: item[1]), first"],
        ["ends([(1, 2), (2, 1), (3, 1)], ['a', 'c', 'b'])", "ends([(1, 1), (1.0, 1)], ['x'])"],
    ),
    (
        "min_max",
        """
        def best(words: list[str]):
            ranked = sorted(words, key=len, reverse=True)
            return ranked[0]

        def last(words: list[str]):
            return sorted(words)[-1]

        def few(words):
            return sorted(w for w in words)[:2], sorted(words, reverse=True)[:2]
        """,
        ["def best(words: list[str]):\n    return max(words, key=len)\n"],
        ["best(['aa', 'b', 'cc'])", "last(['b', 'a'])", "few('hello')", "few('')"],
    ),
    (
        "join",
        """
        def table(rows: list[list[int]]) -> str:
            text = "<"
            width = 3

            # every row
            for row in rows:
                for cell in row:
                    text += f"{cell:{width}}"
                text += "\\n"
            return text + ">"
        """,
        [
            '    text_parts = ["<"]\n',
            '            text_parts.append(f"{cell:{width}}")\n',
            '    text = "".join(text_parts)\n    return text + ">"',
            "    # every row\n    for row in rows:",
        ],
        ["table([[1, 2], [30]])", "table([])"],
    ),
    (
        "comprehension",
        """
        def squares(items):
            found = []
            for item in items:
                if item > 1:
                    found.append(item * item)
            return found
        """,
        ["    found = [item * item for item in items if item > 1]\n    return found"],
        ["squares([1, 2, 3])", "squares('ab')"],
    ),
    (
        "no_temporary",
        """
        def letters(words):
            return len(set([w[0] for w in words])), sum([len(w) for w in words]), sorted(list(words))
        """,
        ["len({w[0] for w in words})"],
        ["letters(['ab', 'ac', 'b'])", "letters([])"],
    ),
    (
        "bisect",
        """
        LIMITS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


        def bucket(size: int) -> int:
            \"\"\"Return the bucket of a size.\"\"\"
            for number, limit in enumerate(LIMITS):
                if size <= limit:
                    return number
            return len(LIMITS)


        def rounded(size: int) -> str:
            for limit in LIMITS:
                if limit > size:
                    return f"{size} of {limit}"
            return "large"
        """,
        [
            "from bisect import bisect_right\n",
            (
                "    limit_place = bisect_right(LIMITS, size)\n    if limit_place < len(LIMITS):\n"
                '        limit = LIMITS[limit_place]\n        return f"{size} of {limit}"\n    return "large"'
            ),
        ],
        [f"(bucket({n}), rounded({n}))" for n in (-5, 0, 1, 2, 3, 64, 255, 256, 257)],
    ),
    (
        "bisect",
        """
        import bisect

        def ranks(scores: list[float], asked: list[float]) -> list[int]:
            ladder = sorted(scores)
            return [sum(1 for s in ladder if s < one) for one in asked]

        def above(words: list[str], limit: str) -> int:
            found = [w.lower() for w in words]
            found.append("zz")
            found.sort()
            return sum(1 for w in found if limit <= w)
        """,
        ["return [bisect.bisect_left(ladder, one) for one in asked]"],
        [
            "ranks([3.0, 1.0, 2.0, 2.0], [0.0, 2.0, 9.0])",
            "ranks([], [1.0])",
            "above(['B', 'a'], 'b')",
            "above([], 'x')",
        ],
    ),
    (
        "test_first",
        """
        def tally(words):
            counts = {}
            for word in words:
                try:
                    counts[word, len(word)] += 1
                except KeyError:
                    counts[word, len(word)] = 1
            return counts

        def firsts(words):
            found = dict()
            for word in words:
                key = word[:1]
                try:
                    found[key] += "," + word
                except KeyError:
                    # new
                    found[key] = word
            return found

        def seconds(words):
            found = {}
            for word in words:
                try:
                    found[word] += 1
                except KeyError:
                    found[word] = 1
                    if word == "x":
                        break
            return found
        """,
        [
            (
                "        if word in found:\n            found[word] += 1\n        else:\n            found[word] = 1\n"
                '            if word == "x":\n                break\n    return found'
            )
        ],
        ["seconds(['a', 'b', 'a', 'x', 'c'])", "seconds([[]])", "tally(['a', 'a'])", "firsts(['aa', 'ab'])"],
    ),
    (
        "test_first",
        """
        def sizes(nodes, items):
            found = []
            for node in nodes:
                try:
                    size = node.real
                except AttributeError:
                    size = None
                try:
                    item = next(items)
                except StopIteration:
                    item = ""
                found.append((size, item))
            return found
        """,
        ['        size = getattr(node, "real", None)\n'],
        ["sizes([1, 'a', 2.5], iter('xy'))", "sizes([], iter(''))"],
    ),
    (
        "dict_once",
        """
        def total(prices: dict[str, float], orders: list[str]) -> float:
            money = 0.0
            for name in prices:
                if prices[name] > 1:
                    money += prices[name] * orders.count(name)
            return money if "x" not in prices.keys() else -1.0
        """,
        [
            "    for name, name_value in prices.items():\n        if name_value > 1:\n            money += name_value *"
        ],
        ["total({'a': 2.0, 'b': 0.5}, ['a', 'a', 'b'])", "total({}, [])", "total({'x': 1.5}, [])"],
    ),
    (
        "dict_once",
        """
        def known(words):
            table = {w: len(w) for w in words}
            return [w for w in ("a", "bb") if w in table.keys()]
        """,
        ['for w in ("a", "bb") if w in table]'],
        ["known(['a'])"],
    ),
    (
        "slots",
        """
        class Node:
            \"\"\"A node of a list.\"\"\"

            def __init__(self, value, after=None):
                self.value, self.after = value, after
                self._seen: bool = False

            @property
            def name(self):
                return str(self.value)

            def visit(self):
                self._seen = True
                self.count = 1
                return self._seen


        def length(n):
            head = None
            for value in range(n):
                head = Node(value, head)
            size = 0
            while head is not None:
                size += head.visit() + len(head.name)
                head.after = head.after
                head = head.after
            return size
        """,
        [
            '    """A node of a list."""\n\n    __slots__ = ("value", "after", "_seen", "count")\n\n    def __init__'
        ],
        ["length(0)", "length(12)"],
    ),
    (
        "localise",
        """
        import math
        import re


        class Ruler:
            def __init__(self, step):
                self.step = step

            def marks(self, values):
                found = []
                for value in values:
                    if value > 0:
                        found.append(math.sqrt(value) * self.step)
                return found


        def marks(values):
            return Ruler(2).marks(values), re.findall("a", "aa")
        """,
        [
            "        math_sqrt = math.sqrt\n        for value in values:",
            "found.append(math_sqrt(value) * self.step)",
        ],
        ["marks([1, 4, -2])", "marks([])"],
    ),
    (
        "localise",
        """
        class Ruler:
            def __init__(self, step):
                if step < 0:
                    step = 0
                self.step = step

            def marks(self, values):
                found = []
                for value in values:
                    for other in values:
                        found.append(value * self.step + other)
                return found


        def marks(values):
            return Ruler(2).marks(values)
        """,
        [
            "        self_step = self.step\n        for value in values:",
            "found.append(value * self_step + other)",
        ],
        ["marks([1, 4, -2])", "marks([])"],
    ),
    (
        "no_temporary",
        """
        def shouting(words: list[str]) -> bool:
            return any([word.isupper() and not word == "I" for word in words])
        """,
        ['any(word.isupper() and not word == "I" for word in words)'],
        ["shouting(['I', 'A'])", "shouting([])"],
    ),
]

# What must be left alone, and why.
LEFT: list[tuple[str, str, str]] = [
    ("memoise", "prints", "def f(n: int) -> int:\n    for _ in range(n):\n        print(n)\n    return n\n"),
    ("memoise", "asks the clock", "import time\ndef f(n: int) -> float:\n    return sum(time.time() for _ in range(n))\n"),
    ("memoise", "draws lots", "import random\ndef f(n: int) -> int:\n    return max(random.randrange(n) for _ in range(n))\n"),
    ("memoise", "reads a global that changes", "TOTAL = 0\ndef g():\n    global TOTAL\n    TOTAL += 1\ndef f(n: int) -> int:\n    return sum(TOTAL for _ in range(n))\n"),
    ("memoise", "reads a table that is filled", "_TABLE = {}\ndef g(k):\n    _TABLE[k] = 1\ndef f(n: int) -> int:\n    return sum(_TABLE[k] for k in range(n))\n"),
    ("memoise", "returns a list", "def f(n: int):\n    return [i for i in range(n)]\n"),
    ("memoise", "takes a list", "def f(items: list[int]) -> int:\n    return sum(i for i in items)\n"),
    ("memoise", "takes anything", "def f(items) -> int:\n    return sum(i for i in items)\n"),
    ("memoise", "is a generator", "def f(n: int):\n    for i in range(n):\n        yield i\n"),
    ("memoise", "is a method", "class A:\n    def f(self, n: int) -> int:\n        return sum(self.x for _ in range(n))\n"),
    ("memoise", "is decorated", "import atexit\n@atexit.register\ndef f(n: int) -> int:\n    return sum(i for i in range(n))\n"),
    ("memoise", "does hardly anything", "def f(a: int, b: int) -> int:\n    return a + b\n"),
    ("memoise", "calls what is unknown", "from lib import g\ndef f(n: int) -> int:\n    return sum(g(i) for i in range(n))\n"),
    ("memoise", "takes what changes", "class Node:\n    w: int\ndef f(node: Node, n: int) -> int:\n    return sum(node.w for _ in range(n))\n"),
    ("memoise", "its name means several things", "def f(n: int) -> int:\n    return sum(range(n))\nf = print\n"),
    ("memoise", "has an attribute", "def f(n: int) -> int:\n    return sum(i for i in range(n))\nf.calls = 0\n"),
    ("memoise", "opens a file", "def f(name: str) -> int:\n    return sum(1 for _ in open(name))\n"),
    ("memoise", "builtin means something else", "def sum(x):\n    print(x)\n    return 1\ndef f(n: int) -> int:\n    return sum(i for i in range(n))\n"),
    ("seen_set", "items may be lists", "def f(items):\n    seen = []\n    for i in items:\n        if i not in seen:\n            seen.append(i)\n    return len(seen)\n"),
    ("seen_set", "somebody else fills it", "def f(words: list[str], g):\n    seen = []\n    g(seen)\n    for w in words:\n        if w not in seen:\n            seen.append(w)\n    return seen\n"),
    ("seen_set", "items leave it", "def f(words: list[str]):\n    seen = []\n    for w in words:\n        if w not in seen:\n            seen.append(w)\n        if len(seen) > 2:\n            seen.pop()\n    return seen\n"),
    ("seen_set", "it has a second name", "def f(words: list[str]):\n    seen = []\n    other = seen\n    for w in words:\n        if w not in seen:\n            other.append(w)\n            seen.append(w)\n    return seen\n"),
    ("list_to_set", "it grows meanwhile", "def f(a: list[str], b: list[str]):\n    for x in a:\n        if x in b:\n            b.append(x + x)\n    return b\n"),
    ("list_to_set", "it may grow under another name", "def f(a: list[str], b: list[str], c: list[str]):\n    n = 0\n    for x in a:\n        c.append(x)\n        if x in b:\n            n += 1\n    return n\n"),
    ("list_to_set", "a call may change it", "def f(a: list[str], b: list[str], g):\n    n = 0\n    for x in a:\n        g(x)\n        if x in b:\n            n += 1\n    return n\n"),
    ("list_to_set", "a text is no list", "def f(a: list[str], b: str):\n    return [x for x in a if x in b]\n"),
    ("list_to_set", "items may be lists", "def f(a: list[list[int]], b: list[list[int]]):\n    return [x for x in a if x in b]\n"),
    ("list_to_set", "what is sought may be a list", "def f(a, b: list[str]):\n    return [x for x in a if x in b]\n"),
    ("list_to_set", "it is bound anew in the loop", "def f(a: list[str], b: list[str]):\n    n = 0\n    for x in a:\n        n += x in b\n        b = b[1:]\n    return n\n"),
    ("constant_set", "what is sought may be a list", "def f(x):\n    return x in [1, 2, 3, 4, 5]\n"),
    ("constant_set", "the constant changes", "NAMES = ['a', 'b', 'c', 'd']\nNAMES.append('e')\ndef f(x: str):\n    return x in NAMES\n"),
    ("constant_set", "it is short", "def f(x: str):\n    return x in ['a', 'b']\n"),
    ("deque", "it is sliced", "def f(xs):\n    q = list(xs)\n    while q:\n        x = q.pop(0)\n        print(q[1:], x)\n"),
    ("deque", "it is returned", "def f(xs):\n    q = list(xs)\n    q.pop(0)\n    return q\n"),
    ("deque", "it is printed", "def f(xs):\n    q = list(xs)\n    q.pop(0)\n    print(q)\n"),
    ("deque", "it is the caller's", "def f(q):\n    while q:\n        print(q.pop(0))\n"),
    ("deque", "it changes while it is gone through", "def f(xs):\n    q = list(xs)\n    for x in q:\n        q.pop(0)\n"),
    ("count_once", "it grows meanwhile", "def f(words: list[str]):\n    for w in words:\n        if words.count(w) > 1:\n            words.append('x')\n"),
    ("count_once", "a text is no list", "def f(text: str):\n    return [text.count(c) for c in text]\n"),
    ("compile_regex", "the pattern is made", "import re\ndef f(x, n):\n    return re.match('a' * n, x)\n"),
    ("compile_regex", "the pattern is wrong", "import re\ndef f(x):\n    return re.match('(', x)\n"),
    ("compile_regex", "re is something else", "import regex as re\nimport re\ndef f(x):\n    return re.match('a', x)\n"),
    ("compile_regex", "re comes later", "def f(x):\n    return re.match('a', x)\nimport re\n"),
    ("compile_regex", "flags are made", "import re\ndef f(x, flags):\n    return re.match('a', x, flags)\n"),
    ("hoist", "it shrinks meanwhile", "def f(xs: list[int]):\n    while len(xs) > 1:\n        xs.pop()\n"),
    ("hoist", "a call may change it", "def f(xs: list[int], g):\n    i = 0\n    while i < len(xs):\n        i = g(i)\n"),
    ("hoist", "it could fail", "def f(xs: list[int], ys: list[int]):\n    return [y for y in ys if y > max(xs)]\n"),
    ("hoist", "the loop variable", "def f(rows: list[list[int]]):\n    return [len(row) for row in rows]\n"),
    ("hoist", "each turn gets its own", "def f(xs: list[int], n: int):\n    found = []\n    for _ in range(n):\n        found.append(sorted(xs))\n    return found\n"),
    ("hoist", "it may be no text where the loop makes no turn", "def f(q, lines: list[str]):\n    return [x for x in lines if x and q.lower() in x]\n"),
    ("seen_set", "the program looks at the type", "def f(items):\n    seen = []\n    for i in items:\n        if isinstance(i, str):\n            i = i.lower()\n        if i not in seen:\n            seen.append(i)\n    return seen\n"),
    ("seen_set", "the program catches the error", "def f(items):\n    seen = []\n    for i in items:\n        try:\n            print(i.lower())\n        except AttributeError:\n            pass\n        if i not in seen:\n            seen.append(i)\n    return seen\n"),
    ("min_max", "the error is expected", "def f(xs):\n    try:\n        return sorted(xs)[0]\n    except IndexError:\n        return None\n"),
    ("min_max", "the last among equals", "def f(xs):\n    return sorted(xs)[-1], sorted(xs, key=len)[-1]\n"),
    ("min_max", "a place in the middle", "def f(xs, n):\n    return sorted(xs)[1], sorted(xs)[:n], sorted(xs)[:-1]\n"),
    ("min_max", "the rest is used", "def f(xs):\n    ranked = sorted(xs)\n    return ranked[0], ranked\n"),
    ("min_max", "sorted is something else", "from lib import sorted\ndef f(xs):\n    return sorted(xs)[0]\n"),
    ("join", "it is read meanwhile", "def f(n: int):\n    s = ''\n    for i in range(n):\n        s += 'x'\n        print(len(s))\n    return s\n"),
    ("join", "it is a number", "def f(n: int):\n    s = 0\n    for i in range(n):\n        s += i\n    return s\n"),
    ("join", "parts may be anything", "def f(parts):\n    s = ''\n    for p in parts:\n        s += p\n    return s\n"),
    ("join", "it is bytes", "def f(n: int):\n    s = b''\n    for i in range(n):\n        s += b'x'\n    return s\n"),
    ("join", "an error would show it", "def f(n: int):\n    s = ''\n    try:\n        for i in range(n):\n            s += str(1 // i)\n    except ZeroDivisionError:\n        return s\n"),
    ("comprehension", "the variable is used later", "def f(xs):\n    out = []\n    for x in xs:\n        out.append(x)\n    return out, x\n"),
    ("comprehension", "it looks at what it fills", "def f(xs):\n    out = []\n    for x in xs:\n        out.append(len(out))\n    return out\n"),
    ("comprehension", "it has a comment", "def f(xs):\n    out = []\n    for x in xs:\n        out.append(x)  # kept\n    return out\n"),
    ("comprehension", "super() would not work", "class A(B):\n    def f(self, xs):\n        out = []\n        for x in xs:\n            out.append(super().f(x))\n        return out\n"),
    ("bisect", "it is not sorted", "def f(xs: list[int], x: int):\n    for i, v in enumerate(xs):\n        if v >= x:\n            return i\n"),
    ("bisect", "it is sorted the other way", "def f(ys: list[int], x: int):\n    xs = sorted(ys, reverse=True)\n    for i, v in enumerate(xs):\n        if v >= x:\n            return i\n"),
    ("bisect", "it is sorted by a key", "def f(ys: list[str], x: str):\n    xs = list(ys)\n    xs.sort(key=str.lower)\n    for i, v in enumerate(xs):\n        if v >= x:\n            return i\n"),
    ("bisect", "it grows after it was sorted", "def f(ys: list[int], x: int):\n    xs = list(ys)\n    xs.sort()\n    xs.append(0)\n    return sum(1 for v in xs if v < x)\n"),
    ("bisect", "it may not be sorted yet", "def f(ys: list[int], x: int, c: bool):\n    xs = list(ys)\n    if c:\n        xs.sort()\n    return sum(1 for v in xs if v < x)\n"),
    ("bisect", "the last small one is sought", "def f(ys: list[int], x: int):\n    xs = sorted(ys)\n    for i, v in enumerate(xs):\n        if v <= x:\n            return i\n"),
    ("bisect", "the constant is not in order", "LIMITS = (1, 2, 4, 3, 5, 6, 7, 8, 9)\ndef f(x: int):\n    for v in LIMITS:\n        if v > x:\n            return v\n"),
    ("bisect", "what is sought may be anything", "def f(ys: list[int], x):\n    xs = sorted(ys)\n    return sum(1 for v in xs if v < x.y), sum(1 for v in xs if v < x)\n"),
    ("bisect", "the place is used later", "def f(ys: list[int], x: int):\n    xs = sorted(ys)\n    for i, v in enumerate(xs):\n        if v >= x:\n            return i\n    return i\n"),
    ("bisect", "enumerate is something else", "from lib import enumerate\ndef f(ys: list[int], x: int):\n    xs = sorted(ys)\n    for i, v in enumerate(xs):\n        if v >= x:\n            return i\n"),
    ("test_first", "it may make up missing keys", "def f(words, counts):\n    for w in words:\n        try:\n            counts[w] += 1\n        except KeyError:\n            counts[w] = 1\n"),
    ("test_first", "it is a kind of dict", "from collections import defaultdict\ndef f(words):\n    counts = defaultdict(int)\n    for w in words:\n        try:\n            counts[w] += 1\n        except KeyError:\n            counts[w] = 1\n    return counts\n"),
    ("test_first", "something else may raise it", "def f(words, g):\n    counts = {}\n    for w in words:\n        try:\n            counts[w] += g(w)\n        except KeyError:\n            counts[w] = 1\n    return counts\n"),
    ("test_first", "two look-ups", "def f(words):\n    a, b = {}, {}\n    for w in words:\n        try:\n            x = a[w] + b[w]\n        except KeyError:\n            x = 1\n        a[w] = x\n    return a\n"),
    ("test_first", "the error goes on", "def f(words):\n    counts = {}\n    for w in words:\n        try:\n            counts[w] += 1\n        except KeyError:\n            raise ValueError(w)\n    return counts\n"),
    ("test_first", "more is tried", "def f(words):\n    counts = {}\n    for w in words:\n        try:\n            counts[w] += 1\n            print(w)\n        except KeyError:\n            counts[w] = 1\n    return counts\n"),
    ("test_first", "no loop repeats it", "def f(w):\n    counts = {}\n    try:\n        counts[w] += 1\n    except KeyError:\n        counts[w] = 1\n    return counts\n"),
    ("test_first", "the default is worked out", "def f(nodes, g):\n    for n in nodes:\n        try:\n            x = n.size\n        except AttributeError:\n            x = g()\n        print(x)\n"),
    ("test_first", "another variable is set", "def f(nodes):\n    x = y = 0\n    for n in nodes:\n        try:\n            x = n.size\n        except AttributeError:\n            y = 1\n    return x, y\n"),
    ("dict_once", "it changes meanwhile", "def f(d: dict[str, int]):\n    for k in d:\n        d[k] = d[k] + 1\n"),
    ("dict_once", "a call may change it", "def f(d: dict[str, int], g):\n    for k in d:\n        g(k)\n        print(d[k])\n"),
    ("dict_once", "the key changes", "def f(d: dict[str, int]):\n    for k in d:\n        k = k + 'x'\n        print(d[k])\n"),
    ("dict_once", "it may be no dict", "def f(d, x):\n    for k in d:\n        print(d[k])\n    return x in d.keys()\n"),
    ("slots", "a class attribute", "class A:\n    size = 1\n    def __init__(self):\n        self.size = 2\n"),
    ("slots", "a base", "class A(B):\n    def __init__(self):\n        self.size = 2\n"),
    ("slots", "it is a base", "class A:\n    def __init__(self):\n        self.size = 2\nclass C(A):\n    pass\n"),
    ("slots", "its dictionary is looked at", "class A:\n    def __init__(self):\n        self.size = 2\n    def items(self):\n        return self.__dict__\n"),
    ("slots", "attributes are set by name", "class A:\n    def __init__(self, **kw):\n        self.size = 2\n        for k in kw:\n            setattr(self, k, kw[k])\n"),
    ("slots", "others set more of them", "class A:\n    def __init__(self):\n        self.size = 2\ndef f(a):\n    a.colour = 3\n"),
    ("slots", "a decorator", "from dataclasses import dataclass\n@dataclass\nclass A:\n    def __init__(self):\n        self.size = 2\n"),
    ("slots", "an answer is kept in its dictionary", "from functools import cached_property\nclass A:\n    def __init__(self):\n        self.size = 2\n    @cached_property\n    def f(self):\n        return 1\n"),
    ("localise", "the module is not known", "import lib\ndef f(xs):\n    return [0 for _ in xs], [x for x in xs]\ndef g(xs):\n    for x in xs:\n        lib.f(x)\n"),
    ("localise", "the module has no such name", "import math\ndef f(xs):\n    for x in xs:\n        if x:\n            math.nosuch(x)\n"),
    ("localise", "the list is replaced", "def f(xs):\n    out = []\n    for x in xs:\n        out.append(x)\n        if x > 3:\n            out = []\n    return out\n"),
    ("localise", "the list is the caller's", "def f(xs, out):\n    for x in xs:\n        out.append(x)\n"),
    ("localise", "a call may change it", "class A:\n    def __init__(self):\n        self.n = 1\n    def f(self, xs):\n        for x in xs:\n            self.g(self.n)\n"),
    ("localise", "it may be missing", "class A:\n    def __init__(self, n):\n        if n:\n            self.n = 1\n    def f(self, xs):\n        t = 0\n        for x in xs:\n            t += self.n\n        return t\n"),
    ("localise", "it is worked out", "class A:\n    def __init__(self, n):\n        self.m = 1\n    @property\n    def n(self):\n        return next(self.m)\n    def f(self, xs):\n        t = 0\n        for x in xs:\n            t += self.n\n        return t\n"),
    ("localise", "a base may work it out", "from lib import B\nclass A(B):\n    def __init__(self, n):\n        self.n = 1\n    def f(self, xs):\n        t = 0\n        for x in xs:\n            t += self.n\n        return t\n"),
    ("localise", "others run between turns", "import math\ndef f(xs):\n    for x in xs:\n        yield math.sqrt(x)\n"),
    ("no_temporary", "what is left out may matter", "def f(xs, g):\n    return any([g(x) for x in xs]), all([1 / x > 0 for x in xs])\n"),
    ("no_temporary", "the list is the point", "def f(xs):\n    return list([x for x in xs]), len([x for x in xs])\n"),
]  # fmt: skip
