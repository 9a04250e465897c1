"""Recognises a system prompt that an older editor sends as a leading message of the assistant (C-1).

A real turn of the assistant must never be taken for a prompt: a missed prompt still reaches the model as a message. So
the first sentence must tell a model what it is or does and say nothing to a person, and a role that people have too
needs an instruction about answers after it. The patterns are unambiguous and read only the beginning, so that no text
makes matching slow.
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
    return bool(ROLE.match(sentence)) and any(map(INSTRUCTION.search, others))


MAX_READ: Final = 600  # characters
# Headings and tags before the prompt.
HEADINGS: Final = re.compile(r"\s*(?:#[^\n]*\n\s*|<[A-Za-z][\w.:-]*>\s*)*")
SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s|\n")
# "You are an expert at this already, so I …": the assistant talks about itself, or gives a reason.
SPEAKS_TO_A_PERSON: Final = re.compile(r"\b(?:I|I['’](?:m|ll|ve|d)|me|my|because|already|but|so(?! that))\b")
_YOU_ARE: Final = r"You(?: are|['’]re) (?:now )?(?:[A-Z][\w. -]{0,60}, )?"
_WORDS: Final = r"(?:[\w'-]+,? ){0,6}?"
ROLE: Final = re.compile(_YOU_ARE + r"(?:an?|the) ")
# What only a model is, and what people are too unless nothing or a purpose follows ("You are an agent short").
ROLE_OF_A_MODEL: Final = re.compile(
    _YOU_ARE
    + r"(?:an? "
    + _WORDS
    + r"(?:(?:AI|LLM|assistant|chatbot|language model|(?:AI|coding|programming|automated|autonomous) agent)"
    r"(?=[.,:;!]|$| (?:for|in|that|which|who|with|to|of|working|designed|trained|built|made|running|and)\b)"
    r"|(?:agent|model|bot|coder)(?=[.!:]|$| (?:that|which|designed|trained|built|made)\b))"
    r"|the " + _WORDS + r"(?:AI|LLM|assistant|chatbot|model|agent)(?=[.!:]|$| of this (?:editor|project|repository)\b))"
)
TASK: Final = re.compile(
    r"Your (?:role|task|job|goal) is to "
    r"|Follow the user['’]s (?:requirements|instructions|requests?)\b"
    r"|Act as an? " + _WORDS + r"(?:AI|assistant|agent|expert|developer|engineer|programmer|reviewer|teacher|tutor|"
    r"translator|interpreter|interviewer|writer|editor|analyst|architect|terminal|console)\b"
    r"|As an? " + _WORDS + r"(?:AI|assistant|agent|expert)\b[^,]{0,80}, you (?:answer|write|help|will|are)\b"
)
# Instructions about answers, which nobody gives to a person at the start of a conversation.
INSTRUCTION: Final = re.compile(
    r"\b(?:Answer|Reply|Respond|Return|Output|Translate|Correct|Rewrite|Summari[sz]e)\b"
    r"|\b(?:Do not|Don['’]t|Never) (?:answer|explain|give|invent|mention|output|reveal|say|use|write)\b"
    r"|\b[Tt]he user\b|\b[Yy]our (?:answers?|repl(?:y|ies)|output)\b|\bYour (?:role|task|job|goal) is to\b"
    r"|\bFollow (?:the|these|all) (?:instructions|rules|guidelines|requirements)\b"
)
