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
MORE_REAL_TURNS = [
    "You are right, the test was wrong: it compared seconds with milliseconds.",
    "You are an AI researcher, judging by the imports; use `torch.compile` here.",
    "You are the assistant manager in this data set, row 14.",
    "You are a bot according to the server, since the cookie is missing.",
    "Your goal is to keep the loop under 5 ms? Then drop the regex.",
    "Your task is to merge first; the rebase comes after.",
    "Your task is to do nothing: the job retries by itself.",
    "Your role is to approve the deployment, and that is all that is missing now.",
    "Act as a developer would: read the log first. It says `EACCES`.",
    "Act as an editor of this file and the lock is yours.",
    "You are a translator? Then the `.po` file is what you need. Return to it after the build.",
    "You are the user in this diagram. The user calls the gateway, and the gateway calls the model.",
    "You are a new user of the shell. Answer `y` when it asks and the disk is formatted.",
    "You are an admin. Do not use the root account for this.",
    "You are a customer of theirs. Never give the token to support.",
    "You are in a detached HEAD state. Return to main with `git switch main`.",
    "Follow the user's request through the proxy in the trace: it fails at hop 2.",
    "As an expert on Rust, you will like this: the borrow checker finds the bug.",
    "As an agent of the company, you are liable; a lawyer should read clause 7.",
    "You are a language model away from a working prototype: pick one and run `make`.",
    "You are an editor short of a full setup: install `ripgrep` as well.",
    "You are a reviewer on this change, and your reply is missing.",
    "You are a developer in the second group. Your output looks different because of the locale.",
    "You are an engineer. The user in the ticket is somebody else.",
    "You are an assistant in their system, which has fewer rights than an owner.",
    "You are an agent of change, they say. The migration is in `0042.sql`.",
    "You are an expert user. Answer with `--force` at the prompt and it deletes the branch.",
    "You are the AI lead, so the budget is yours.",
    "Your task is to write a letter to the editor, and the deadline is Friday.",
    "Your job is to review 14 files by tonight.",
    "Your goal is to complete the course before June, as you wrote.",
    "Your role is to assist Dr. Lee in the lab on Mondays.",
    "Act as an expert and you will be treated as one.",
    "Act as a reviewer for a day; it changes how you write commits.",
    "Follow the user's instructions in the manual that came with the board.",
    "As an assistant, you help patients in room 4, according to the rota.",
    "You are a teacher in Bonn. Respond in German if the parents write.",
    "You are now an owner of the repository. Accept the invitation in your mail.",
    "You are a programmer, and it shows. The loop is fine.",
    "You are an AI student at heart. The course on optimisation starts in May.",
    "You are an AI away from shipping, as the slide puts it.",
    "You are a tool builder, by the look of the repository.",
    "You are an assistant for one more week; after that the access ends.",
    "You are the agent in the test, and the broker is the mock.",
    "You are a model. At least the photo agency lists you as one.",
    "You are the model citizen of this code base: every function has a test.",
    "You are a data scientist, and the notebook shows it. Return a copy of the frame to avoid the warning.",
    "You are an engineer for the rail company. The user wants a ticket, the company wants the data.",
    "You are a writer that holds the lock. Return one of the two handles before you open a third.",
    "You are an editor in the wiki. Do not answer the edit request twice.",
    "Your task is to answer the second message, which arrived at noon.",
    "Your job is to help the user who opened ticket 12, according to the rota.",
    "Your role is to translate the text on page 3, Anna has pages 4 to 9.",
    "Act as an engineer who has never seen the code and read the first file aloud.",
    "Follow the user's instructions. They are in README.md, section 2.",
    "You are a programmer that the compiler likes. It found no error.",
    "You are an expert, and experts read logs. Your reply should mention line 80.",
    "You are a chatbot victim. The order was placed by a script.",
    "You're an agent for the northern region in this sheet, row 9.",
    "You are a bot. That is what the captcha thinks, anyway.",
]
MORE_PROMPTS = [
    "You are GitHub Copilot, an AI programming assistant.",
    "You are an intelligent programmer, powered by a large language model. You are happy to help answer questions of the user.",
    "You are Claude, a large language model made by Anthropic.",
    "You are a concise technical writer. Answer in plain English.",
    "You are an autonomous coding agent. Keep going until the task is done.",
    "You are a code review bot. Output JSON only.",
    "You are a world-class debugger. The user sends a stack trace; you name the cause.",
    "You are an AI that writes unit tests.",
    "You are a terminal assistant for Linux users.",
    "You are Aider, an AI pair programming tool in the terminal.",
    "You are a knowledgeable and friendly assistant that answers questions about Kubernetes.",
    "You are an LLM that labels images.",
    "Your task is to extract the entities of the text.",
    "Your goal is to help the user to write better SQL.",
    "Act as a Linux terminal. I will type commands and you will reply with the output.",
    "You are the AI assistant of this repository.",
    "## Role\nYou are an expert Go developer. Reply with code only.",
    "You are a chatbot for a library. Respond politely.",
    "You're an AI coding assistant that follows instructions exactly.",
    "You are a commit message generator. Return only the message.",
    "You are Codex, a coding agent based on a GPT model.",
    "You are opencode, an interactive CLI tool that helps users with software engineering tasks.",
    "You are Roo, a highly skilled software engineer with extensive knowledge in many programming languages.",
    "You are an interactive agent that helps users with software engineering tasks.",
    "You are a powerful agentic AI coding assistant.",
    "You are an expert software developer.\nAlways use best practices when coding.",
    "Act as an expert software developer.\nTake requests for changes to the supplied code.",
    "You are an interactive CLI agent specializing in software engineering tasks.",
    "You are a helpful AI assistant. Respond in Markdown.",
    "You are a data scientist. Return a single Python code block.",
    "You are an AI language model that rewrites text in a formal tone.",
    "You are a customer support assistant for an online shop.",
    "You are a JSON generator. Output only valid JSON.",
    "You are a SQL expert. Never explain the query.",
    "Your task is to summarize the conversation in one sentence.",
    "Your job is to answer questions about the attached document.",
    "You are a professional translator. Translate the user's text into German.",
    "You are a Git commit assistant. Write one line.",
    "You are an assistant that speaks like a pirate.",
    "You are a security reviewer. The user gives you a diff.",
]


@pytest.mark.parametrize("text", REAL_TURNS + MORE_REAL_TURNS)
def test_real_turn_is_never_taken(text: str) -> None:
    """C-1: 0 of 81."""
    assert not is_system_prompt(text)


@pytest.mark.parametrize("prompts", [PROMPTS, MORE_PROMPTS[:20], MORE_PROMPTS[20:]], ids=["first", "second", "third"])
def test_few_prompts_are_missed(prompts: list[str]) -> None:
    """C-1: at most 2 of 21."""
    assert len(prompts) >= 20
    missed = [text for text in prompts if not is_system_prompt(text)]
    assert len(missed) <= 2, missed


def test_long_text_after_the_beginning_does_not_matter() -> None:
    """C-1: prompts quote answers with the first person far below."""
    assert is_system_prompt("You are an AI assistant. Be brief." + " Say: I cannot help." * 500)
