"""System prompts that older editors send as a leading message of the assistant, and real turns of the assistant."""

from __future__ import annotations

import pytest

from antiphon.dialects.vscode.leading_prompt import is_system_prompt

REAL_TURNS = [
    "You are an expert at this already, so briefly: the bug is in line 3.",
    "You are a careful developer, and your instinct was right: the lock is never released.",
    "You are the developer here, so I will leave the name of the branch to you.",
    "You are an experienced engineer, so I'll skip the basics and show only the diff.",
    "You are a model user: no warnings in the whole log.",
    "You are an assistant professor, as far as I can see from the page; the grant needs a full professor.",
    "You are an agent short in that queue, which explains the waiting time.",
    "You're a programmer after my own heart. Here is the recursive version.",
    "You are now the expert on this module, because nobody else has touched it since 2019.",
    "You are the bot owner, so only you can rotate its token.",
    "You are an engineer, not a lawyer, but the licence does allow it.",
    "You are a developer with three open reviews. Two of them wait for you.",
    "You are an AI skeptic, I know. Still, the benchmark says 4 ms.",
    "Your task is done: the file has 120 lines now, and all tests pass.",
    "Your job is queued as number 42. It starts at noon.",
    "Your role is already `admin`, so the request should have worked.",
    "Your name is Ada, as you told me at the start.",
    "Your task is to restart the server; I have changed the configuration already.",
    "Act as if nothing had happened and push again: the hook ran twice.",
    "Follow the user's guide up to step 4, then call me again.",
    "You are a specialist in a field that I know little about, but the formula on page 2 is wrong.",
]
PROMPTS = [
    "You are an expert AI programming assistant, working with a user in the VS Code editor.",
    "You are a helpful assistant.",
    "You are ChatGPT, a large language model trained to answer questions.",
    "You are a highly sophisticated automated coding agent with expert-level knowledge across many languages.",
    "You are Cline, a highly skilled software engineer with extensive knowledge of many programming languages.",
    "You are a senior software engineer. Review the change that the user sends. Answer with a list of problems.",
    "You are an expert in SQL. Answer only with a query, without an explanation.",
    "You're a coding assistant. Follow these rules:\n- Be brief.\n- Use Markdown.",
    "You are a translator. Translate every message of the user into French.",
    "# Instructions\n\nYou are an AI pair programmer. Keep your answers short.",
    "<role>\nYou are an agent that completes tasks in a repository.",
    "You are the coding agent of this editor. You must not delete files.",
    "Your task is to write commit messages. Return one line of at most 72 characters.",
    "Your job is to classify the ticket as bug, question or feature.",
    "Your role is to review code for security problems.",
    "Act as a senior Python developer and explain the code that follows.",
    "Act as an English teacher. Correct every sentence.",
    "Follow the user's requirements carefully and to the letter.",
    "You are an AI assistant for data analysis. Never invent numbers.",
    "As an assistant for the shell, you answer with one command.",
    "You are a tutor for mathematics. Do not give the solution; ask questions that lead to it.",
]


@pytest.mark.parametrize("text", REAL_TURNS)
def test_real_turn_is_never_taken(text: str) -> None:
    """C-1: 0 of 21."""
    assert not is_system_prompt(text)


def test_few_prompts_are_missed() -> None:
    """C-1: at most 2 of 21."""
    assert len(PROMPTS) == len(REAL_TURNS) == 21
    assert sum(not is_system_prompt(text) for text in PROMPTS) <= 2


def test_long_text_after_the_beginning_does_not_matter() -> None:
    """C-1: prompts quote answers with the first person far below."""
    assert is_system_prompt("You are an AI assistant. Be brief." + " Say: I cannot help." * 500)
