"""Tell text from garbage.

Broken weights, kernels or caches show in the text: ``!!!!`` (token 0, of logits that are no numbers), one phrase for
ever, letters of many scripts in an English answer, words that are none.
"""

import re
import unicodedata

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
LATIN_SHARE = 0.95
LETTER_SHARE = 0.6
WORD_LENGTH = 12.0
# About two in five words of English prose are among these; of random tokens hardly any.
COMMON_SHARE = 0.12
COMMON_FROM_WORDS = 20
_COMMON = (
    "the of and to in a is that it for as with on by are be this which from or an can at its into they you when one "
    "has have not than more their was were but also these each them between such other all so if your most"
)
COMMON = frozenset(_COMMON.split())
# A line of dashes or a table's rule is not a fault.
RULES = "-=_*~#|. \n"
SAME = re.compile(rf"([^{re.escape(RULES)}])\1{{23,}}")
CYCLE_COPIES = 4
CYCLE_CHARACTERS = 48
CYCLE = re.compile(rf"(.{{2,80}}?)\1{{{CYCLE_COPIES - 1},}}", re.DOTALL)
DISTINCT_FROM_WORDS = 40
DISTINCT_SHARE = 0.2


def corrupt(text: str) -> str:
    """What cannot be in any text, whatever it is about; empty if there is nothing of the kind."""
    if not text.strip():
        return "is empty"
    # An answer that ends at its limit may end within a character.
    body = text[:-1] if text.endswith(REPLACEMENT) else text
    if (broken := body.count(REPLACEMENT)) > 0:
        return f"has {broken} replacement characters"
    controls = [c for c in text if unicodedata.category(c) in ("Cc", "Co", "Cs") and c not in "\n\t\r"]
    if controls:
        return f"has {len(controls)} characters that are none (first: U+{ord(controls[0]):04X})"
    return ""


def runaway(text: str) -> str:
    """What is said over and over; empty if nothing is."""
    if found := SAME.search(text):
        return f"repeats {found[1]!r} {len(found[0])} times"
    for found in CYCLE.finditer(text):
        if len(found[0]) >= CYCLE_CHARACTERS and found[1].strip(RULES):
            return f"repeats {found[1][:40]!r} {len(found[0]) // len(found[1])} times"
    words = re.findall(r"\w+", text.lower())
    if len(words) >= DISTINCT_FROM_WORDS and len(set(words)) < DISTINCT_SHARE * len(words):
        return f"has only {len(set(words))} different words of {len(words)}"
    return ""


def unreadable(text: str) -> str:
    """Why ``text`` is no English prose, as the end of a sentence that begins with "the answer"; empty if it is."""
    if fault := corrupt(text) or runaway(text):
        return fault
    letters = [c for c in text if c.isalpha()]
    latin = sum(unicodedata.name(c, "").startswith("LATIN") for c in letters)
    if latin < LATIN_SHARE * len(letters):
        strange = next(c for c in letters if not unicodedata.name(c, "").startswith("LATIN"))
        share = 100 * (len(letters) - latin) // len(letters)
        return f"has {share} % letters of another script (first: {strange!r}), expected Latin ones"
    if len(letters) < LETTER_SHARE * len("".join(text.split())):
        return f"has {len(letters)} letters among {len(''.join(text.split()))} characters, expected prose"
    words = re.findall(r"[^\W\d_]+", text.lower())
    if sum(map(len, words)) > WORD_LENGTH * len(words):
        return f"has words of {sum(map(len, words)) / len(words):.0f} letters on average, expected English ones"
    common = sum(word in COMMON for word in words)
    if len(words) >= COMMON_FROM_WORDS and common < COMMON_SHARE * len(words):
        return f"has {common} common English words among {len(words)}, expected at least {COMMON_SHARE:.0%}"
    return ""


def agreement(one: str, other: str) -> int:
    """How many characters both begin with."""
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))
