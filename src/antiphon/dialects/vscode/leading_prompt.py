"""Recognises a system prompt that an older editor sends as a leading message of the assistant (C-1).

A real turn of the assistant must never be taken for a prompt: a missed prompt still reaches the model as a message. So
the first sentence must tell a model what it is or does and say nothing to a person, and a role that people have too
needs a heading before it or an instruction about answers after it. A sentence that is nothing but a role needs an order
after it, without code, which an answer about somebody's work would have. The patterns are bounded and read only the
start, so that no text makes matching slow.
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
    if ORDER_TO_ACT.fullmatch(sentence):
        return True
    if SPEAKS_TO_A_PERSON.search(sentence):
        return False
    if OPENING_OF_A_PROMPT.match(sentence) or TASK.match(sentence) or ROLE_OF_A_MODEL.match(sentence):
        return True
    has_order = any(map(_is_order, others))
    if has_order and (ONLY_A_ROLE.fullmatch(sentence) or INPUT.fullmatch(sentence)):
        return True
    has_heading = bool(headings.group().strip())
    return bool(ROLE.match(sentence)) and (has_heading or has_order or any(map(INSTRUCTION.search, others)))


def _is_order(text: str) -> bool:
    """Whether the text begins with an order to a model, in a sentence without code."""
    sentence = SENTENCE_END.split(text.lstrip(), maxsplit=1)[0]
    return bool(ORDER.match(sentence)) and not SPEAKS_TO_A_PERSON.search(sentence) and not CASE.search(sentence)


MAX_READ: Final = 600  # characters
# Headings and tags before the prompt.
HEADINGS: Final = re.compile(r"\s*(?:#[^\n]*\n\s*|<[A-Za-z][\w.:-]*>\s*|(?i:system(?: prompt| message)?|role): ?\s*)*")
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
# No preposition, which would say whose or where ("You are a customer of theirs."), and no role of a person alone.
ONLY_A_ROLE: Final = re.compile(
    _YOU_ARE + r"an? (?:(?!(?:about|as|at|by|for|from|in|of|on|to|with)\b)[\w'’-]+,? ){0,6}"
    r"(?!(?:admin|applicant|beginner|buyer|candidate|contributor|customer|employee|guest|maintainer|manager|member|"
    r"newcomer|owner|parent|patient|player|reader|student|subscriber|tenant|user|visitor)\b)[\w'’-]+[.:]"
)
# What the model gets, as in "You will be given a diff."
INPUT: Final = re.compile(
    r"You will (?:be given|receive) an? (?:[\w-]+ ){0,2}"
    r"(?:code snippet|conversation|diff|document|question|text|ticket|transcript)[.:]"
)
ORDER_TO_ACT: Final = re.compile(r"(?:I want you to|You will) act as an? (?:[\w-]+ ){0,3}[\w-]+[.:]?")
_MADE_BY: Final = r"(?:created|designed|developed|built|made|trained) by "
_LANGUAGE: Final = r"(?:[A-Z][a-z]+(?:ese|ian|ish|man)|French)"
_FORM: Final = rf"(?:JSON|Markdown|YAML|{_LANGUAGE}|plain \w+|valid \w+|one (?:word|line|sentence)|rhymes)"
# What only a prompt begins with.
OPENING_OF_A_PROMPT: Final = re.compile(
    rf"{_YOU_ARE}[A-Z][\w. -]{{0,40}}, (?:an? [\w -]{{1,40}} )?{_MADE_BY}"
    rf"|{_YOU_ARE}[A-Z][\w. -]{{0,40}}, [A-Z]\w+['’]s (?:[\w-]+ ){{0,3}}(?:agent|assistant|CLI|model)\b"
    rf"|{_YOU_ARE}[\w.-]+, an? (?:[\w-]+ ){{0,4}}?(?:chatbot|CLI tool|coding agent|command-line tool)[.:]?$"
    rf"|(?:The )?[Aa]ssistant is (?:[A-Z]\w+, {_MADE_BY}|an? (?:large )?language model\b)"
    r"|(?:In this environment,? )?[Yy]ou have access to (?:a set of|the following|these) (?:functions|tools)\b"
    r"|When asked (?:for|about) your (?:name|identity|model), you (?:must|should|will) (?:answer|reply|respond|say)\b"
    r"|As an AI(?: [\w-]+){0,2}? (?:agent|assistant|model), "
    r"(?:always|follow|never|you (?:are|can|have|must|should|will)|your)\b"
    rf"|(?:You must (?:always )?|Always )(?:answer|reply|respond)(?: only)? in {_FORM}[.:]?$"
    r"|Answer (?:all|each|every) (?:message|question|request)s? (?:in|with) "
    r"|You answer questions about the (?:code|codebase|documentation|project|workspace)(?: (?:in|of) this \w+)?[.:]?$"
    r"|You help (?:developers|programmers|users) (?:to )?(?:debug|fix|learn|review|understand|write) [\w ]{1,60}[.:]?$"
    r"|Knowledge cutoff: \d|Below is an instruction that describes a task\b"
)
CASE: Final = re.compile(r"`|\b(?:if|when)\b")  # code, or a case of somebody's work
ORDER: Final = re.compile(
    r"Always (?:answer|be|explain|include|reply|respond|return|think|use)\b"
    r"|Never (?:answer|apologi[sz]e|explain|invent|mention|output|refuse|reveal)\b"
    r"|Be (?:brief|concise|friendly|helpful|polite|precise|strict|thorough)\b"
    rf"|(?:Answer|Reply|Respond|Speak|Write) (?:briefly|concisely|politely|only|in {_FORM}|with (?:code|JSON|only))"
    r"|(?:Convert|Correct|Explain|Rewrite|Score|Summari[sz]e|Translate) (?:all|any|each|every|everything|the "
    r"(?:answer|code|conversation|input|text|user['’]s))\b"
    r"|Focus on (?:bugs|clarity|correctness|performance|readability|security)\b"
    r"|Use (?:best practices|idiomatic|Markdown)\b|(?:Output|Return) (?:JSON|just|only|valid)\b"
    r"|(?:Classify|Extract|Generate|Identify|Write) (?:an?|one|short|stories|tests|the) ?"
    r"|You (?:always|never) |You (?:answer|reply|respond|speak|write) (?:briefly|only|in|with)\b"
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
