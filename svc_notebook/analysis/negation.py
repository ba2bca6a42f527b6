r"""Negation around a label in a reply, in English and in Thai.

A reply that negates a label does not give it as the answer: "It isn't spam",
"ไม่ใช่สแปม", "I can't say yes". A reply that can be read in two ways has no answer, so
doubtful cases count as negated: it is better to miss an answer than to read the
opposite.

A negation applies up to the end of its clause: a full stop, a comma, "but" or "แต่".
"""

import re

_QUOTE = "[\"'\u2018\u2019\u201c\u201d\u00ab\u00bb()\\[\\]]"
_NOT = (
    r"\bcannot\b"
    "|\\b[a-z]+n['\u2018\u2019\u02bc\u00b4]t\\b"  # isn't
    r"|\b(?:is|are|was|were|do|does|did|ca|could|would|should|wo|has|have|had|ai)nt\b"
    r"|\bnot\b(?! (?:only|just|merely|simply|to mention)\b)(?<!whether or not)"
)
_ENGLISH = (
    rf"{_NOT}"
    # not in "no 2" (a number) nor in "no doubt"
    r"|\bno\b(?! (?:doubt|question|\d))"
    r"|\bnothing\b(?! (?:but|other than|less than)\b)"
    r"|\bnone\b(?! other than\b)|\bwithout\b(?! (?:a |any )?(?:doubt|question)\b)"
    r"|\b(?:nor|never|neither|nobody|hardly|barely|scarcely|rarely|seldom|unlikely"
    r"|(?<!no )(?<!any )(?<!a )(?<!without )doubt|doubts|doubtful|den(?:y|ies|ied)"
    r"|lacks?|lacking|fail(?:s|ed)? to"
    r"|unable to|refuse to|ruled? out|rules out|exclud(?:e|es|ed|ing)"
    r"|(?:rather|other) than|instead of|opposed to|far from|free (?:of|from)"
    r"|anything but|impossible|wrong to|incorrect to|false that)\b"
)
# not in "หรือไม่" (or not), "ไม่ว่า" (no matter), "ไม่เพียง" (not only), "ไม่ต้องสงสัย"
# (no doubt), nor "อย่า" (do not) in "อย่าง" (kind)
_THAI_NOT = (
    "(?<!หรือ)ไม่(?!ว่า|เพียง|ใช่เพียง|ใช่แค่|ใช่แต่|แค่|ต้องสงสัย|มีข้อสงสัย|มีข้อกังขา)"
    "|(?<!หรือ)(?:มิใช่|มิได้|หาใช่)(?!เพียง|แค่|แต่)"
)
_THAI = f"{_THAI_NOT}|มิอาจ|ปราศจาก|ไร้|ห้าม|ปฏิเสธ|อย่า(?!ง)"
_NEGATION = re.compile(f"{_ENGLISH}|{_THAI}")

# "it is not, in my opinion, spam": what is between the commas does not end the clause
_ASIDE = re.compile("((?:not|n['\u2018\u2019]t|ไม่ใช่)) ?,([^,.;:!?]{1,80}),")
_CLAUSE_END = re.compile(
    r"[.!?](?=\W|$)|[;:,\u2026\u3002]"
    r"|(?<!anything )\bbut\b|\b(?:because|therefore|thus|hence)\b"
    r"|\b(?:and|so) (?=(?:it|it's|this|that|the|is|was|are|i|we|they|so|thus"
    r"|therefore)\b)"
    r"|แต่|จึง|ดังนั้น|เพราะ"
)
# In Thai a space ends most clauses, and "เป็น" (is) or "คือ" begins the next one. But
# not after "I do not think" and the like, which negate what follows.
_THAI_NEXT = re.compile(
    "(?:ไม่|มิ)(?!(?:ได้)?(?:คิด|เชื่อ|แน่ใจ|มั่นใจ|ทราบ|รู้|เห็น|พบ|สามารถ|อาจ|กล้า|ควร|น่า|เคย))"
    r"[^\s]* (?=เป็น|คือ|นี่|ตอบ|คำตอบ|จัด|ถือ)"
)

_AFTER = re.compile(
    rf"{_QUOTE}*(?:"
    # "spam is not ...", "spam isn't"; "spam is wrong"
    r" (?:it )?(?:is|are|was|were|does|do|did|can|could|would|should|will|has|may)"
    r"(?:n['\u2018\u2019\u02bc\u00b4]?t\b| not\b(?! (?:only|just)\b)| never\b)"
    r"| (?:cannot|can't)\b"
    r"| (?:it|this|that) (?:is not|isn['\u2019]?t)\b"
    r"| (?:is|are|was|would be|seems?|looks?)"
    r" (?:wrong|incorrect|false|unlikely|impossible)\b"
    # "spam or not"; "spam: no." and "spam": false, but not "spam: no greeting"
    r"| or not\b"
    rf"|{_QUOTE}* ?[=:?\u2013-]+ ?{_QUOTE}*(?:i do not think|i don['\u2019]?t think"
    r"|not (?:at all|really|likely|in the least)\b"
    r"|(?:(?:definitely|certainly|absolutely|probably|surely) )?"
    r"(?:no|not|nope|nah|never|false|ไม่(?:ใช่)?(?:ครับ|ค่ะ|คะ)?)"
    r"(?=\s*(?:$|[^\w\s])))"
    "|หรือไม่|หรือเปล่า|ก็ไม่|หามิได้"
    "| ?(?:ไม่|มิ)ใช่(?=(?:ครับ|ค่ะ|คะ|นะ|หรอก|แน่)*\\s*(?:$|[^\\w\\s]))"
    f"|(?:{_THAI_NOT})"
    ")"
)


def negation_around(text: str, start: int, end: int, *, since: int = 0) -> str | None:
    """Return the words that negate a part of a text; None if there are none.

    Args:
        text: The text in lower case, with single spaces; "." ends a paragraph.
        start: Where the part begins.
        end: Where it ends.
        since: Where the previous label ends; negations before that belong to it.
    """
    before = text[since:start]
    if _NEGATION.search(before):
        clause = _clause_before(before)
        negated = f"{clause}{text[start:end]}"
        negation = _NEGATION.search(negated)
        # a negation that begins in the label, such as "not spam", is part of it
        if negation is not None and negation.start() < len(clause):
            return negated[negation.start() :]
    if after := _AFTER.match(text, end):
        return text[start : after.end()]
    return None


def _clause_before(text: str) -> str:
    """Return the end of a text, from the last boundary of a clause on."""
    text = _ASIDE.sub(r"\1\2", text)
    start = 0
    for boundary in (_CLAUSE_END, _THAI_NEXT):
        for match in boundary.finditer(text, start):
            start = match.end()
    return text[start:]
