"""Recognises a system prompt that an older editor sends as a leading message of the assistant (C-1).

A real turn of the assistant must never be taken for a prompt: a missed prompt still reaches the model as a message. So
the first sentence must tell a model what it is or does and say nothing to a person, and a role that people have too
needs a heading before it or an instruction about answers after it. The patterns are bounded and read only the start,
so that no text makes matching slow.
"""

from __future__ import annotations

import re
from typing import Final


def is_system_prompt(text: str) -> bool:
    """Whether the text begins like a system prompt."""
    beginning = text[:MAX_READ]
    headings = HEADINGS.match(beginning)
    assert headings is not None  # every part of the pattern is optional
    sentence, *others = SENTENCE_END.split(beginning[headings.end() :], maxsplit=1)
    if SPEAKS_TO_A_PERSON.search(sentence):
        return False
    if TASK.match(sentence) or ROLE_OF_A_MODEL.match(sentence):
        return True
    has_heading = bool(headings.group().strip())
    return bool(ROLE.match(sentence)) and (has_heading or any(map(INSTRUCTION.search, others)))


MAX_READ: Final = 600  # characters
# Headings and tags before the prompt.
HEADINGS: Final = re.compile(r"\s*(?:#[^\n]*\n\s*|<[A-Za-z][\w.:-]*>\s*)*")
SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s|\n")
# "You are an expert at this already, so I …": the assistant talks about itself, asks, gives a reason or an order.
SPEAKS_TO_A_PERSON: Final = re.compile(
    r"[?;]|\b(?:I|I['’](?:m|ll|ve|d)|me|my|mine|because|already|but|first|here|since|still|then|yet|so(?! that))\b"
    r"|(?<!You are )(?<!You['’]re )\bnow\b"
)
_YOU_ARE: Final = r"You(?: are|['’]re) (?:now )?"
_NAME: Final = r"(?:[A-Za-z][\w. -]{0,60}, )"
_WORDS: Final = r"(?:[\w'-]+,? ){0,6}?"
_PURPOSE: Final = r" (?:that|which|designed|trained|built|made|running|working|based on|specializ(?:ed|ing) in)\b"
# What only a model is, and what people are too unless nothing or a purpose follows ("You are an agent short").
ROLE_OF_A_MODEL: Final = re.compile(
    rf"{_YOU_ARE}{_NAME}?(?:an? {_WORDS}"
    r"(?:(?:AI (?:[\w-]+ ){0,3}(?:assistant|agent|tool)|AI|LLM|language model|chatbot|(?:coding|programming) assistant"
    r"|(?:coding|programming|automated|autonomous) agent)"
    rf"(?=[.,:!]|$| (?:for|in|who|with|to|of|and)\b|{_PURPOSE})"
    rf"|assistant(?=[.!:]|$| for\b|{_PURPOSE})|(?:agent|model|bot|coder|tool)(?={_PURPOSE}))"
    rf"|the {_WORDS}(?:AI|LLM|assistant|chatbot|model|agent)(?=[.!:]|$| of this (?:editor|project|repository)\b))"
    rf"|{_YOU_ARE}[^.]{{0,80}}\bpowered by (?:an AI|a (?:large )?language model)\b"
    rf"|{_YOU_ARE}{_NAME}an? {_WORDS}engineer with extensive knowledge (?:in|of) "
)
# What people are too; the end of the sentence, a field or a description follows.
ROLE: Final = re.compile(
    _YOU_ARE
    + rf"{_NAME}?an? {_WORDS}(?:agent|analyst|architect|bot|coder|consultant|debugger|developer|editor|engineer|expert|"
    r"generator|model|programmer|reviewer|scientist|specialist|teacher|translator|tutor|writer)"
    r"(?=[.,:]|$| (?:for|in|who|that|specializ(?:ed|ing) in)\b)|Your (?:role|task|job|goal) is to "
)
_ROLE_THAT_ACTS: Final = (
    r"(?:AI|assistant|agent|expert|developer|engineer|programmer|reviewer|teacher|tutor|translator|interpreter|"
    r"interviewer|writer|editor|analyst|architect|terminal|console)"
)
TASK: Final = re.compile(
    r"Your (?:role|task|job|goal) is to (?:help(?:\.|$)|"
    r"(?:answer|classify|convert|extract|help|label|rewrite|score|summari[sz]e|translate) "
    r"(?:[\w-]+ ){0,4}?(?:the|attached) (?:conversation|document|input|message|text|ticket|user)\b(?! (?:on|who)\b))"
    r"|Follow the user['’]s (?:requirements|instructions|requests?)"
    r"(?= (?:carefully|closely|exactly|precisely|to the letter)\b)"
    rf"|Act as an? {_WORDS}{_ROLE_THAT_ACTS}(?=\.|$| (?:who|that)\b| and (?:answer|explain|review|translate|write)\b)"
    rf"|As an? {_WORDS}(?:AI|assistant|agent)\b[^,]{{0,80}}, you (?:(?:will|must|should) )?(?:answer|reply|respond)\b"
)
# Instructions about answers, which nobody gives to a person at the start of a conversation.
INSTRUCTION: Final = re.compile(
    r"\b(?:Answer|Reply|Respond) (?:only|briefly|concisely|politely|with (?:an?|one|only|code|the)|in (?:JSON|Markdown|"
    r"plain|one|at most))\b"
    r"|\b(?:Return|Output) (?:a single|only|one line|just|valid|JSON)\b"
    r"|\b(?:Translate|Correct|Rewrite|Summari[sz]e) (?:all|any|each|every|the user['’]s)\b"
    r"|\b(?:Do not|Don['’]t|Never) (?:explain|invent|mention|output|reveal|give the (?:answer|solution))\b"
    r"|\b[Tt]he user(?:['’]s| (?:asks|gives|provides|sends|writes))\b"
    r"|\b(?:Keep your|Your) (?:answers|replies|output) (?:brief|concise|must|short|should)\b"
    r"|\bYour (?:role|task|job|goal) is to\b"
    r"|\bFollow (?:the|these|all) (?:instructions|rules|guidelines|requirements)\b"
)
