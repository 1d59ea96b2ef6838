"""Rows: readers, templates, chat forms, reserved columns, gold answers, the seeded limit; the last row counts too."""

import json
import os
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from command_line import RECIPE, assert_says, changed, questions, write_rows

from grpo_kit.data.data import RESERVED, Template, load_data
from grpo_kit.recipe.recipe import load_recipe

NO_TEMPLATE = changed("  prompt: '{question}'\n", "")


def with_data(path: str, more: str = "") -> str:
    """The recipe on another file, with more lines (from the 5th) in its `dataset:`."""
    return changed("path: rows.jsonl", f"path: {path}", changed("  prompt: '{question}'\n", _template(more)))


def _template(more: str) -> str:
    return ("" if "prompt:" in more else "  prompt: '{question}'\n") + "".join(f"  {x}\n" for x in more.splitlines())


def first_prompt(shown: str) -> str:
    """The user message of the first row, as `check` shows it."""
    lines = [line.removeprefix("  | ") for line in shown.splitlines() if line.startswith("  | ")]
    text = "\n".join(lines)
    return text[text.index("<|im_start|>user\n") + len("<|im_start|>user\n") :].split("<|im_end|>")[0]


# Readers


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("d.jsonl", '{"question": "a", "answer": "1"}\n\n{"question": "b", "answer": "2"}'),
        ("d.jsonl", '\ufeff{"question": "a", "answer": "1"}\r\n{"question": "b", "answer": "2"}\r\n'),
        ("d.JSONL", '{"question": "a", "answer": "1"}\n{"question": "b", "answer": "2"}\n'),
        ("d.json", '[{"question": "a", "answer": "1"}, {"question": "b", "answer": 2}]'),
        ("d.json", '\ufeff[{"question": "a", "answer": "1"}, {"question": "b", "answer": "2"}]'),
        ("d.csv", "question,answer\na,1\nb,2\n"),
        ("d.csv", "\ufeffquestion,answer\r\na,1\r\n\r\nb,2\r\n"),
        ("d.csv", '"question","answer"\n"a",1\n"b, with ""quotes""\nand lines",2\n'),
    ],
)
def test_files_of_two_rows(cli, path, content):
    Path(path).write_bytes(content.encode())
    shown = cli.passes(recipe=with_data(path))
    assert f"{path}, 2 rows" in shown
    assert first_prompt(shown) == "a"
    assert "gold: 1" in shown


def test_a_parquet_file(cli):
    pyarrow.parquet.write_table(pyarrow.table({"question": ["a", "b"], "answer": [1, 2]}), "d.parquet")
    shown = cli.passes(recipe=with_data("d.parquet"))
    assert "d.parquet, 2 rows" in shown
    assert "gold: 1" in shown


@pytest.mark.parametrize(
    ("path", "content", "message"),
    [
        ("d.jsonl", "", "r.yaml:3: dataset.path: d.jsonl has no rows"),
        ("d.jsonl", "\n\n", "r.yaml:3: dataset.path: d.jsonl has no rows"),
        ("d.jsonl", '{"question": "a"}\n{"question": "b"\n', "/d.jsonl:2: not valid JSON (Expecting ',' delimiter"),
        ("d.jsonl", '{"question": "a"}\n[1]\n', "/d.jsonl:2: found [1]; every row is an object with columns"),
        ("d.jsonl", "null\n", "/d.jsonl:1: found None; every row is an object with columns"),
        ("d.jsonl", json.dumps(questions(3)), "/d.jsonl:1: found [{'question': "),
        ("d.jsonl", "[" * 100_000 + "\n", "/d.jsonl:1: not valid JSON (maximum recursion depth exceeded"),
        ("d.jsonl", b'{"question": "\xe9"}\n', "/d.jsonl: not UTF-8 text (invalid continuation byte at byte 14)"),
        ("d.jsonl", '{"question": "a"}\n'.encode("utf-16"), "/d.jsonl: not UTF-8 text (invalid start byte at byte 0)"),
        ("d.json", "", "/d.json: not valid JSON (Expecting value: line 1 column 1 (char 0)); one object per line is"),
        ("d.json", "[]", "r.yaml:3: dataset.path: d.json has no rows"),
        ("d.json", '{"data": []}', "/d.json: found {'data': []} at the top; write a list of objects"),
        ("d.json", '{"question": "a"}\n{"question": "b"}\n', "/d.json: not valid JSON (Extra data: line 2"),
        ("d.json", '[{"question": "a"}, 3]', "/d.json: row 1: found 3; every row is an object with columns"),
        ("d.json", "[" * 100_000, "/d.json: not valid JSON (maximum recursion depth exceeded"),
        ("d.csv", "", "r.yaml:3: dataset.path: d.csv has no rows"),
        ("d.csv", "question,answer\n", "r.yaml:3: dataset.path: d.csv has no rows"),
        ("d.csv", "question,answer\na,1\nb,2,3\n", "/d.csv:3: not as many fields as the header has columns"),
        ("d.csv", "question,answer\na,1\nb\n", "/d.csv:3: not as many fields as the header has columns"),
        ("d.csv", "question,question\na,1\n", "/d.csv:1: two columns are called 'question'; rename one"),
        ("d.csv", "question,\na,1\n", "/d.csv:1: column 2 of 2 has no name; name it, or remove it"),
        ("d.csv", "question;answer\na;1\n", "/d.csv:1: found the one column 'question;answer'; separate columns with"),
        ("d.csv", 'question,answer\na,1\n"b,2\n', "/d.csv:3: not valid CSV (unexpected end of data)"),
        ("d.parquet", "", "/d.parquet: not a readable parquet file (Parquet file size is 0 bytes)"),
        ("d.parquet", "not parquet at all", "/d.parquet: not a readable parquet file ("),
        ("d.txt", "a\n", "r.yaml:3: dataset.path: found 'd.txt'; a local file ends in .jsonl, .json, .csv, .parquet"),
        ("d.jsonl.gz", "a\n", "r.yaml:3: dataset.path: found 'd.jsonl.gz'; a local file ends in .jsonl"),
        ("d", "a\n", "r.yaml:3: dataset.path: found 'd'; a local file ends in .jsonl"),
    ],
)
def test_a_file_that_cannot_be_read(cli, path, content, message):
    Path(path).write_bytes(content if isinstance(content, bytes) else content.encode())
    expected = message if message.startswith("r.yaml") else f"{Path.cwd()}{message}"
    assert_says(cli.refuses(recipe=with_data(path)), expected)


def test_a_parquet_file_that_was_cut_off(cli):
    pyarrow.parquet.write_table(pyarrow.table({"question": ["a"] * 1000}), "d.parquet")
    whole = Path("d.parquet").read_bytes()
    Path("d.parquet").write_bytes(whole[: len(whole) // 2])
    assert_says(cli.refuses(recipe=with_data("d.parquet")), f"{Path.cwd()}/d.parquet: not a readable parquet file (")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("no.jsonl", "r.yaml:3: dataset.path: no such file: no.jsonl (looked for no.jsonl, "),
        ("loop.jsonl", "r.yaml:3: dataset.path: no such file: loop.jsonl"),
        ("~nobody-has-this-name/x.jsonl", "r.yaml:3: dataset.path: no such file: ~nobody-has-this-name/x.jsonl"),
        ("n" * 990 + ".jsonl", "r.yaml:3: dataset.path: no such file: nnn"),
        ("n" * 5000, f"r.yaml:3: dataset.path: found '{'n' * 56}...; write text of at most 1000 characters"),
        ("'~'", "r.yaml:3: dataset.path: found '~', a folder of more than data; name the file itself"),
        (".", "r.yaml:3: dataset.path: found '.', a folder of more than data"),
        ("/", "r.yaml:3: dataset.path: found '/', a folder of more than data"),
        ("da*", "r.yaml:3: dataset.path: found 'da*'; write one file's name, without * ? [, or a hub id"),
        ("https://a.b/c.jsonl", "r.yaml:3: dataset.path: found 'https://a.b/c.jsonl'; write a hub id, or download"),
        ("folder.jsonl", "{}/folder.jsonl: cannot be read (Is a directory)"),
        ("empty_folder", "r.yaml:3: dataset.path: {}/empty_folder: "),
    ],
)
def test_a_path_without_a_file(cli, path, message):
    Path("folder.jsonl").mkdir()
    Path("empty_folder").mkdir()
    Path("loop.jsonl").symlink_to("loop.jsonl")
    assert_says(cli.refuses(recipe=with_data(path)), message.format(Path.cwd()))


def test_a_link_to_a_file_of_another_name_is_read_by_its_own(cli):
    Path("blobs").mkdir()
    write_rows("blobs/3f2a9c", questions(5))
    Path("link.jsonl").symlink_to("blobs/3f2a9c")
    assert "5 rows" in cli.passes(recipe=with_data("link.jsonl"))


def test_a_folder_above_the_recipe_is_refused_however_it_is_written(cli):
    Path("above").symlink_to("..")
    for path in ("..", "above", "../."):
        assert "a folder of more than data" in cli.refuses(recipe=with_data(path))


def test_rows_are_not_read_from_a_pipe(cli):
    os.mkfifo("pipe.jsonl")
    assert_says(
        cli.refuses(recipe=with_data("pipe.jsonl")),
        f"r.yaml:3: dataset.path: {Path.cwd()}/pipe.jsonl is no regular file; rows are read more than",
    )


def test_a_user_without_a_home_may_name_a_folder(cli, monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    Path("folder").mkdir()
    write_rows("folder/train.jsonl", questions(5))
    monkeypatch.setattr(Path, "home", no_home)
    assert "folder, split train, 5 rows" in cli.passes(recipe=with_data("folder"))


def test_a_folder_is_read_as_a_data_set_of_the_hub_is(cli):
    Path("folder").mkdir()
    write_rows("folder/train.jsonl", questions(5))
    assert "folder, split train, 5 rows" in cli.passes(recipe=with_data("folder"))
    message = cli.refuses(recipe=with_data("folder", "split: test"))
    assert_says(message, "r.yaml:3: dataset.path: folder, split test cannot be loaded: ")


def test_a_file_beside_the_recipe_comes_before_the_current_folder(capsys):
    from grpo_kit.data.sources import find_file

    Path("beside").mkdir()
    for folder in (".", "beside"):
        Path(folder, "d.jsonl").touch()
    Path("only_here.jsonl").touch()
    assert find_file("d.jsonl", Path("beside")) == Path("beside/d.jsonl").resolve()
    assert find_file("only_here.jsonl", Path("beside")) == Path("only_here.jsonl").resolve()


@pytest.mark.parametrize("key", ["split", "name"])
def test_a_local_file_has_no_split_and_no_name(cli, key):
    message = cli.refuses(recipe=with_data("rows.jsonl", f"{key}: train"))
    assert_says(message, f"r.yaml:5: dataset.{key}: a local file has no {key}; remove it")


# Prompts


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        (r"Solve \frac{1}{2} {q} \boxed{}", r"Solve \frac{1}{2} Q \boxed{}"),
        (r"\boxed{q} {q}", r"\boxed{q} Q"),  # after a LaTeX command a column's name is no column
        (r"\text{q} \sqrt[3]{q} \frac{q}{q} {q}", r"\text{q} \sqrt[3]{q} \frac{q}{q} Q"),
        (r"\boxed{\frac{q}{2}} {q}", r"\boxed{\frac{q}{2}} Q"),
        (r"$x_{k}^{2}$ $a_{i}$ {q}", r"$x_{k}^{2}$ $a_{i}$ Q"),
        ("No_{n}: {q}", "No_7: Q"),
        ("{} {1, 2} {'q': 1} {q}", "{} {1, 2} {'q': 1} Q"),
        ("{a b} {q}{q}", "C QQ"),
        ("{{q}}", "{Q}"),
        ("${q}", "$Q"),
        ("｛q｝ {q}", "｛q｝ Q"),  # full-width braces are text
        ("{题目} {q}", "题 Q"),
        ("{n}", "7"),
        ("{q:>5} {q}", "{q:>5} Q"),  # no format language
        ("{tricky} {q}", "{q} \\1 \\g<0> Q"),  # a value is never read as a template
    ],
)
def test_templates(template, filled):
    row = {"q": "Q", "n": 7, "a b": "C", "题目": "题", "tricky": "{q} \\1 \\g<0>"}
    assert Template(template).fill(row) == filled


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("prompt: '{questoin}'", "dataset.prompt: no column 'questoin' (columns: question, answer); did you mean {que"),
        ("prompt: '{ question }'", "dataset.prompt: no column ' question ' (columns: question, answer); did you mean"),
        ("prompt: '{题目}'", "dataset.prompt: no column '题目' (columns: question, answer)"),
        ("prompt: 'What?'", "dataset.prompt: uses no column, so all rows would be alike (columns: question, answer)"),
        ("prompt: '{question:>9}'", "dataset.prompt: uses no column"),
        ("prompt: '{question}'\nanswer: '{solution}'", "dataset.answer: no column 'solution' (columns: question, answ"),
        ('prompt: "\\boxed{} {question}"', "dataset.prompt: control character U+0008; in YAML's double quotes \\b is"),
        ('prompt: "\\frac {question}"', "dataset.prompt: control character U+000C; in YAML's double quotes"),
        ('prompt: "\\text{x} {question}"', "dataset.prompt: control character U+0009"),
        ('prompt: "\\Pi {question}"', "dataset.prompt: control character U+2029"),
        ('prompt: "{question}"\nsystem: "\\boxed{}"', "dataset.system: control character U+0008"),
        ('prompt: "{question}"\nanswer: "\\boxed{answer}"', "dataset.answer: control character U+0008"),
        ('prompt: "{question}"\nanswer_pattern: "\\b(.)"', "dataset.answer_pattern: control character U+0008"),
        ("prompt: '{question} {answer}'", "dataset.prompt: shows the column 'answer', which holds the gold answer"),
        (
            "prompt: '{question} {level}'\nanswer: '{level}'",
            "dataset.prompt: no column 'level' (columns: question, answer)",
        ),
        ("prompt: '{question}'\nanswer: '{question}'", "dataset.prompt: shows the column 'question', which holds the"),
        (
            "prompt: '{question}'\nsystem: 'It is {answer}.'",
            "dataset.system: is taken literally, but names the column {answer}; use prompt:",
        ),
        ("prompt: '{question}'\nsystem: '<|im_start|>'", "dataset: rows.jsonl, row 0 (from 0) holds <|im_start|>"),
        ("prompt: '{question}'\nanswer_pattern: '('", "dataset.answer_pattern: not a regular expression (missing )"),
        ("prompt: '{question}'\nanswer_pattern: '[0-9]'", "dataset.answer_pattern: needs a group in parentheses"),
    ],
)
def test_a_wrong_template(cli, more, message):
    found = cli.refuses(recipe=with_data("rows.jsonl", more))
    assert_says(found.partition(": ")[2], message)
    assert found.startswith("r.yaml:")


def test_the_gold_answer_may_be_shown_where_that_is_meant(cli):
    recipe = with_data("rows.jsonl", "prompt: '{question} {answer}'\ngold_in_prompt: true")
    assert first_prompt(cli.passes(recipe=recipe)) == "What is 0+0? 0"


def test_tabs_and_lines_are_text(cli):
    assert first_prompt(cli.passes(recipe=with_data("rows.jsonl", 'prompt: "a\\n\\tb {question}"'))).startswith(
        "a\n\tb"
    )


def test_the_system_message_is_literal(cli):
    recipe = with_data("rows.jsonl", r"system: 'Give \boxed{answer}, {} and {x}.'")
    assert r"  | Give \boxed{answer}, {} and {x}.<|im_end|>" in cli.passes(recipe=recipe)


def test_chinese_columns(cli):
    write_rows("d.jsonl", [{"问题": f"{i}加{i}等于多少？", "答案": f"{2 * i}"} for i in range(4)])
    shown = cli.passes(recipe=with_data("d.jsonl", "prompt: '｛请｝回答：{问题}'\nanswer: '{答案}'"))
    assert first_prompt(shown) == "｛请｝回答：0加0等于多少？"
    assert "gold: 0" in shown
    message = cli.refuses(recipe=with_data("d.jsonl", "prompt: '{题目}'"))
    assert_says(message, "r.yaml:4: dataset.prompt: no column '题目' (columns: 问题, 答案)")


@pytest.mark.parametrize(
    ("row", "content"),
    [
        ({"prompt": "hi"}, "hi"),
        ({"prompt": [{"role": "user", "content": "hi"}]}, "hi"),
        ({"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "no prompt"}]}, "hi"),
        ({"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "no prompt"}]}, "hi"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}, "hi"),
        ({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                       {"role": "user", "content": "c"}]}, "a"),
    ],
)  # fmt: skip
def test_chat_forms_with_a_plain_meaning(cli, row, content):
    write_rows("d.jsonl", [row] * 4)
    shown = cli.passes(recipe=changed("path: rows.jsonl", "path: d.jsonl", NO_TEMPLATE))
    assert first_prompt(shown) == content
    assert "no prompt" not in shown


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"question": "hi"},
            "dataset.prompt: missing, and the data has no column prompt, messages or conversations (col",
        ),
        ({"messages": [{"role": "system", "content": "s"}]}, "the messages have no user turn to answer"),
        (
            {"messages": [{"role": "tool", "content": "s"}]},
            "has a message that is no {role, content} with text: {'role",
        ),
        ({"messages": [{"role": ["user"], "content": "s"}]}, "has a message that is no {role, content} with text"),
        ({"messages": [{"role": "user", "content": ""}]}, "has a message that is no {role, content} with text"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "has a message that is no {role, content}"),
        ({"messages": ["hi"]}, "has a message that is no {role, content} with text: 'hi'"),
        ({"messages": [None]}, "has a message that is no {role, content} with text: None"),
        ({"messages": []}, "column 'messages' is []; a prompt is text or messages"),
        ({"messages": {"role": "user", "content": "hi"}}, "column 'messages' is {'role'"),
        (
            {"messages": '[{"role": "user", "content": "hi"}]'},
            "column 'messages' holds messages written out as text; st",
        ),
        ({"prompt": ""}, "column 'prompt' is ''; a prompt is text or messages"),
        ({"prompt": None}, "column 'prompt' is None; a prompt is text or messages"),
        ({"prompt": 3}, "column 'prompt' is 3; a prompt is text or messages"),
        (
            {"prompt": "<|im_start|>user\nhi<|im_end|>"},
            "holds <|im_start|>: it is templated already; give the plain text",
        ),
        ({"prompt": "<s>[INST] hi [/INST]"}, "holds [INST]: it is templated already"),
        ({"prompt": "\ud800"}, "holds half of a character (a lone surrogate)"),
    ],
)
def test_a_row_that_is_no_prompt(cli, row, message):
    Path("d.jsonl").write_text(json.dumps(row) + "\n")
    found = cli.refuses(recipe=changed("path: rows.jsonl", "path: d.jsonl", NO_TEMPLATE))
    assert_says(found, "r.yaml:2: dataset", message)


@pytest.mark.parametrize("bad", ["", "  ", None, 3, 1.5, True, [], {"a": 1}])
def test_the_last_row_is_looked_at_too(cli, bad):
    write_rows("d.jsonl", [*questions(7), {"question": bad, "answer": "1"}])
    message = cli.refuses(recipe=with_data("d.jsonl"))
    assert_says(message, f"r.yaml:2: dataset: d.jsonl, row 7 (from 0) column 'question' is {bad!r}")
    # with a limit too, although that row would hardly be drawn
    assert cli.refuses("dataset.limit=2", recipe=with_data("d.jsonl")) == message


def test_a_column_that_a_row_lacks(cli):
    write_rows("d.jsonl", [*questions(3), {"answer": "1"}])
    assert_says(
        cli.refuses(recipe=with_data("d.jsonl")), "r.yaml:2: dataset: d.jsonl, row 3 (from 0) column 'question'"
    )
    write_rows("d.jsonl", [*questions(3), {"question": "a", "answer": "1", "level": 2}])
    cli.passes(recipe=with_data("d.jsonl"))


def test_a_number_may_fill_a_template_but_is_no_prompt(cli):
    write_rows("d.jsonl", [{"question": i, "answer": "1"} for i in range(4)])
    assert first_prompt(cli.passes(recipe=with_data("d.jsonl", "prompt: 'No. {question}'"))) == "No. 0"
    assert_says(
        cli.refuses(recipe=with_data("d.jsonl")), "r.yaml:2: dataset: d.jsonl, row 0 (from 0) column 'question'"
    )


def test_two_system_messages(cli):
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    write_rows("d.jsonl", [{"messages": messages}] * 4)
    recipe = changed("  path: rows.jsonl\n", "  path: d.jsonl\n  system: be kind\n", NO_TEMPLATE)
    assert_says(cli.refuses(recipe=recipe), "r.yaml:2: dataset: d.jsonl, row 0 (from 0) already has a system message")


@pytest.mark.parametrize("name", RESERVED)
@pytest.mark.parametrize("row", [0, 3])
def test_reserved_columns(cli, name, row):
    rows = questions(4)
    rows[row][name] = 1
    write_rows("d.jsonl", rows)
    message = cli.refuses(recipe=with_data("d.jsonl"))
    assert_says(
        message, f"r.yaml:3: dataset.path: d.jsonl has a column called {name}; ", *RESERVED, "rename the column"
    )


# Gold answers


def test_gold_answers_of_every_kind(cli):
    """Numbers become text; rows without a usable answer are listed, and too many of them are an error."""
    golds = ["72", 72, "\\frac12", "blue", "", None, "(1,2)", "1,000"]
    write_rows("d.jsonl", [{"question": f"q{i}", "answer": gold} for i, gold in enumerate(golds)])
    # 2 of 8 are 25 %, above 5 %
    assert cli.refuses(recipe=with_data("d.jsonl")) == (
        "r.yaml:2: dataset.answer: 2 of 8 rows of d.jsonl have no usable gold answer (row 4: ''; row 5: None); "
        "mend the data or the answer_pattern, or allow it with max_unusable: 0.25"
    )
    assert "d.jsonl, 6 rows" in cli.passes("dataset.max_unusable=0.25", recipe=with_data("d.jsonl"))
    write_rows("d.jsonl", [{"question": f"q{i}", "answer": gold} for i, gold in enumerate([*golds, *[1] * 32])])
    shown = cli.passes(recipe=with_data("d.jsonl"))  # 2 of 40 are 5 %
    assert "d.jsonl, 38 rows" in shown
    assert "note       d.jsonl: 2 of 40 rows left out, no usable gold answer (row 4: ''; row 5: None)" in shown
    recipe = load_recipe(Path("r.yaml"))
    rows = load_data(recipe, recipe.dataset, "dataset").rows
    assert [row["answer"] for row in rows[:6]] == ["72", "72", "\\frac12", "blue", "(1,2)", "1,000"]


@pytest.mark.parametrize("gold", ["", "  ", "nan", "None", float("nan"), None, [], "####", "x" * 5000])
def test_a_gold_answer_that_nothing_could_equal(cli, gold):
    write_rows("d.jsonl", [{"question": f"q{i}", "answer": gold} for i in range(7)])
    message = cli.refuses(recipe=with_data("d.jsonl"))
    assert_says(
        message, "r.yaml:2: dataset.answer: 7 of 7 rows of d.jsonl have no usable gold answer (row 0: ", "; ...)"
    )


@pytest.mark.parametrize(
    ("more", "gold"),
    [
        ("answer: '{a}'", "5 #### 7"),
        ("answer: '({b},{b})'", "(3,3)"),
        ("answer: '{a}'\nanswer_pattern: '####\\s*(.+)'", "7"),
        ("answer: '{a}'\nanswer_pattern: '(\\d+) ####'", "5"),
        ("answer: '42'", "42"),
        ("answer: '\\boxed{b}'", "\\boxed{b}"),
    ],
)
def test_where_the_gold_answer_comes_from(cli, more, gold):
    write_rows("d.jsonl", [{"question": f"q{i}", "a": "5 #### 7", "b": 3} for i in range(4)])
    assert f"gold: {gold}\n" in cli.passes(recipe=with_data("d.jsonl", more))


def test_a_pattern_that_matches_nothing(cli):
    recipe = with_data("rows.jsonl", "answer_pattern: '####\\s*(.+)'")
    assert_says(
        cli.refuses(recipe=recipe), "r.yaml:2: dataset.answer: 8 of 8 rows of rows.jsonl have no usable gold an"
    )


def test_a_pattern_without_an_answer(cli):
    write_rows("d.jsonl", [{"question": "a"}] * 4)
    message = cli.refuses(recipe=with_data("d.jsonl", "answer_pattern: '(a)'"))
    assert (
        message
        == "r.yaml:5: dataset.answer_pattern: there is no answer to search; write answer: too (columns: question)"
    )


# The limit


def drawn(*overrides: str) -> list[str]:
    recipe = load_recipe(Path("r.yaml"), overrides)
    return [row["question"] for row in load_data(recipe, recipe.dataset, "dataset").rows]


def test_the_limit_is_a_seeded_draw():
    write_rows("d.jsonl", questions(200))
    Path("r.yaml").write_text(with_data("d.jsonl"))
    every = [row["question"] for row in questions(200)]
    assert drawn() == every
    first = drawn("dataset.limit=20")
    assert len(set(first)) == 20
    assert set(first) <= set(every)
    assert first == drawn("dataset.limit=20")
    assert first != drawn("dataset.limit=20", "seed=1")
    assert first != sorted(first, key=every.index)  # shuffled too
    assert first[:8] == drawn("dataset.limit=8")  # what a smaller limit draws, a larger one draws too
    assert sorted(drawn("dataset.limit=500")) == sorted(every)


def test_every_row_is_as_likely_to_be_drawn():
    """40 draws of 10 of 20 rows: each row is expected 20 times, with a standard deviation of sqrt(40 / 4) = 3.2."""
    write_rows("d.jsonl", questions(20))
    Path("r.yaml").write_text(with_data("d.jsonl"))
    counts = dict.fromkeys((row["question"] for row in questions(20)), 0)
    places = dict(counts)
    for seed in range(40):
        for place, question in enumerate(drawn("dataset.limit=10", f"seed={seed}")):
            counts[question] += 1
            places[question] += place
    assert all(6 <= count <= 34 for count in counts.values()), counts
    # the place among the 10 is as random: 4.5 on average, 2.9 / sqrt(20) = 0.64 its standard deviation
    assert all(2 < places[q] / counts[q] < 7 for q in counts), places


def test_memory_does_not_grow_with_the_file(monkeypatch):
    """With a limit no more rows are alive at once than are kept, but for the one being read."""
    import weakref

    from grpo_kit.data import data
    from grpo_kit.data.sources import Source

    class Row(dict):
        pass

    alive: weakref.WeakValueDictionary[int, Row] = weakref.WeakValueDictionary()
    most = 0

    def rows():
        nonlocal most
        for index in range(3000):
            row = Row(question=f"q{index}", answer="1")
            alive[index] = row
            most = max(most, len(alive))
            yield row

    monkeypatch.setattr(data, "open_source", lambda *_: Source("d", rows))
    Path("r.yaml").write_text(RECIPE)
    assert len(drawn("dataset.limit=10")) == 10
    assert most <= 10 + 2


def test_the_fingerprint_knows_rows_and_order():
    write_rows("d.jsonl", questions(6))
    Path("r.yaml").write_text(with_data("d.jsonl"))

    def fingerprint(*overrides: str) -> str:
        recipe = load_recipe(Path("r.yaml"), overrides)
        return load_data(recipe, recipe.dataset, "dataset").fingerprint()["sha256"]

    assert fingerprint() == fingerprint()
    assert len({fingerprint(), fingerprint("dataset.limit=6"), fingerprint("dataset.limit=5")}) == 3
    write_rows("d.jsonl", [*questions(5), {"question": "another", "answer": "1"}])
    assert fingerprint() != fingerprint("dataset.limit=6")
