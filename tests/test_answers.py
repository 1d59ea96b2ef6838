r"""What a completion answers and whether that is the gold answer: a table per kind, then properties on seeded texts."""

import random
import subprocess
import sys
import time

import pytest

from grpo_kit.answers import final_answer, kind_of, same_answer, usable_gold

# kind: (completion, gold, is it right). Several kinds hold Chinese rows.
KINDS: dict[str, list[tuple[str, str, bool]]] = {
    "plain": [
        ("84 divided by 2 is 42. ⇒ 42", "42", True),
        ("The answer is <b>42</b>.", "42", True),
        ("The answer is:\n\\[\n\\boxed{42}\n\\]", "42", True),
        ('{"answer": 42}', "42", True),
        ('```json\n{"reason": "6 * 7", "answer": 42}\n```', "42", True),
        ('{"answer": 41, "confidence": 42}', "42", False),
        ("58", "58", True),
        ("The answer is 58.", "58", True),
        ("**Answer:** 58", "58", True),
        ("### Final Answer\n\n58", "58", True),
        ("**Final Answer**: $58$", "58", True),
        ("Hence, \\(x = 58\\).", "58", True),
        ("The final answer is: $\\boxed{58}$. I hope it is correct.", "58", True),
        ("So there are 58 apples in total.", "58", True),
        ("The answer is 59.", "58", False),
        ("所以，一共有58个苹果。", "58", True),
        ("答案：58", "58", True),
    ],
    "announced in a sentence": [
        ("A common wrong answer is 42.", "42", False),
        ("Wrong answer: 12. Right answer: 15.", "15", True),
        ("The reference answer is 42.", "42", False),
        ("The answer is 14: 3 * 14 = 42.", "42", False),
        ("If n is even the answer is 41, if odd the answer is 42.", "42", False),
        ("The answer is what 5 people have.", "5", False),
        ("答案不是36，而是35。", "35", True),
        ("The answer to the question is 7, because 3 + 4 = 7.", "7", True),
        ("Final Answer: the number of boxes is 7", "7", True),
        ("The answer is 12 apples for 4 people.", "12", True),
        ("The answer is not 10 but 11.", "11", True),
        ("The answer is not 10.", "10", False),
        ("The answer isn't 7.", "7", False),
        ("If the answer is 7, then 7 + 1 = 8.", "7", False),
        ("Is the answer 7? No. It is 8.", "7", False),
        ("Is the answer 7? No. It is 8.", "8", True),
        ("答案是31，而不是13。", "13", False),
        ("最终答案：-3", "-3", True),
    ],
    "stated without an announcement": [
        ("Not 12 but 15.", "15", True),
        ("It is 15 instead of 12.", "12", False),
        ("2x + 3 = 13, so x = 5", "5", True),
        ("There are 12 boys and 15 girls, that is 27 in all.", "27", True),
        ("So 35 are left of the 50.", "50", False),
        ("The difference between 50 and 8 is 42.", "42", True),
        ("It is 5 degrees below zero.", "-5", True),
        ("She has 12 - 5 = 7 left, then 7 * 3 = 21.", "21", True),
        ("She has 12 - 5 = 7 left, then 7 * 3 = 21.", "7", False),
        ("So Josh made a profit of $70,000.", "70000", True),
        ("John is 45 miles from home at the end of the 4 hours.", "45", True),
        ("So the remaining is 7. Hope this helps!", "7", True),
        ("The probability is $\\frac{3}{8}$, or 37.5%.", "\\frac{3}{8}", True),
        ("The result:\n\n- 9 pears", "9", True),
        ("The result:\n\n- 9 pears", "-9", False),
        ("1. First, 3 + 4 = 7.\n2. Then 7 * 2 = 14.", "14", True),
        ("小红比小明多5个苹果，小明有10个，所以小红有15个。", "15", True),
    ],
    "text after the answer": [
        ("So there are 14 cats. As a check, 14 + 6 = 20.", "20", False),
        ("So there are 14 cats. This makes sense because 14 + 6 = 20.", "14", True),
        ("The answer is 15. Earlier I said 12, which was wrong.", "15", True),
        ("The answer is 18. There were 3 boxes with 6 pears each.", "18", True),
        ("\\boxed{9}\n\nThis took 3 steps.", "9", True),
        ("#### 18\nNote: the class has 20 students.", "18", True),
        ("So he has 8 left. To check: 8 + 4 = 12.", "8", True),
        ("Therefore, there are 15 students. (Assuming that 3 were absent.)", "15", True),
        ("一共需要20天。验证：20×3=60。", "20", True),
    ],
    "nothing said": [
        ("", "0", False),
        (" \n ", "0", False),
        ("I am not sure.", "\\emptyset", False),
        ("\\boxed{}", "0", False),
        ("\\boxed{answer}", "0", False),
        ("<answer></answer>", "0", False),
        ("####", "0", False),
        ("The answer is", "4", False),
        ("我不知道。", "5", False),
    ],
    "cut off": [
        ("so x = 42...", "42", False),
        ("The answer is 42 + ", "42", False),
        ("The answer is 42^", "42", False),
        ("\\[\nx = 42", "42", False),
        ("\\boxed{12", "12", False),
        ("<answer>12", "12", False),
        ("Now we multiply 12 by", "12", False),
        ("There are 9 shelves with 20 books, so in total we", "20", False),
        ("The total is 12 + 3", "15", False),
        ("Half of 90 is 45. The answer is 45. To sum up, we first took the", "45", True),
    ],
    "reasoning": [
        ("<thought>42</thought>", "42", False),
        ("<think >\\boxed{42}</think >", "42", False),
        ("[THINK]42[/THINK]", "42", False),
        ("<think>The answer is 42.</think>", "42", False),
        ("<think>The answer is 42.", "42", False),
        ("<think>40?</think>The answer is 42.", "42", True),
        ("\\boxed{41} and so on</think>\\boxed{42}", "42", True),
        ("\\boxed{41}</think>", "41", False),
        ("\\boxed{1}<think>\\boxed{2}</think>", "1", True),
        ("<think>5</think>\n<answer>5</answer><|im_end|>", "5", True),
        ("<think>设答案是3</think>答案是4", "3", False),
    ],
    "taken back": [
        ("The answer is 12. I take that back.", "12", False),
        ("The answer is 12. That can't be right.", "12", False),
        ("The answer is 12. On second thought, it is 15.", "15", True),
        ("The answer is 12, or rather 15.", "15", True),
        ("The answer is ~~12~~ 15.", "15", True),
        ("\\boxed{12} (wrong)", "12", False),
        ("The answer is 12. Never mind.", "12", False),
        ("The answer is 12. Wait, that is wrong.", "12", False),
        ("Answer: 15. Correction: 18.", "15", False),
        ("Answer: 15. Correction: 18.", "18", True),
        ("The answer is 7.\nWait, I made an error. It should be 8.", "8", True),
        ("\\boxed{10}. Oops, that's wrong.", "10", False),
        ("\\boxed{10}. Wait, is that right? 5 + 5 = 10, yes.", "10", True),
        ("#### 30\nOops, I forgot to halve.\n#### 15", "15", True),
        ("The answer is 8, not 9.", "9", False),
        ("先算出答案是18，不对，重新算，答案是20。", "18", False),
        ("先算出答案是18，不对，重新算，答案是20。", "20", True),
    ],
    "several candidates": [
        ("Final answer: 12\nFinal answer: 42", "42", False),
        ("The answer is 12.\n<answer>42</answer>", "42", False),
        ("It is 41. It is 42. It is 43.", "43", False),
        ("n = 1\nn = 2\nn = 3", "3", False),
        ("The answer is 42 (possibly 43).", "42", False),
        ("My guess: 30. Other guess: 17.", "17", False),
        ("The probability is 3/4 (75%).", "3/4", True),
        ("Is it \\boxed{3}? No. It is \\boxed{5}.", "5", True),
        ("The answer is 12 or 15.", "12", False),
        ("The answer is 12 or 15.", "15", False),
        ("\\boxed{3} \\boxed{4}", "4", False),
        ("Option one gives \\boxed{12}. Option two gives \\boxed{15}.", "15", False),
        ("<answer>3</answer><answer>4</answer>", "4", False),
        ("#### 12\n#### 13", "13", False),
        ("The answer is 7. The answer is 8. The answer is 9.", "9", False),
        ("It is either 3 or 4.", "4", False),
        ("1 2 3 4 5 6 7 8 9", "9", False),
        ("1\n2\n3\n4", "4", False),
        ("答案是12或15。", "15", False),
        ("\\boxed{7} \\boxed{7.0}", "7", True),
        ("The radius is \\boxed{3}. So the area is \\boxed{9\\pi}.", "9\\pi", True),
        ("The side is \\boxed{6}. The perimeter is 4 * 6. The answer is 24.", "24", True),
    ],
    "ranges and bounds": [
        ("The answer is at most 42.", "42", False),
        ("The answer is 42 or more.", "42", False),
        ("The answer is 42+.", "42", False),
        ("The answer is close to 42.", "42", False),
        ("> 42", "42", False),
        ("答案大于42。", "42", False),
        ("不超过42", "42", False),
        ("He needs at least 42 points, so the answer is 42.", "42", True),
        ("The answer is between 40 and 45.", "45", False),
        ("The answer is 40-45.", "45", False),
        ("The answer is less than 10.", "10", False),
        ("\\boxed{x > 5}", "5", False),
        ("\\boxed{[10,14]}", "12", False),
        ("Read chapters 4-9.", "-9", False),
    ],
    "other numbers at the end": [
        ("It is 12.\nSteps: 42", "42", False),
        ("Rating: 10", "10", False),
        ("It is 12. See page 42.", "42", False),
        ("She has 12 left.\n\nNow another one: what is 40+2? It is 42.", "42", False),
        ("Revenue: 50\nCosts: 8\nProfit: 42", "42", True),
        ("置信度：95", "95", False),
        ("The answer is 8. Word count: 31", "31", False),
        ("It is 8.\nConfidence: 95", "95", False),
        ("So we get 30. 42", "42", False),
        ("I do not know the answer. 42", "42", False),
        ("\\boxed{5}\n\nQuestion: 1 + 1?\n\\boxed{2}", "2", False),
        ("\\boxed{5}\n\nQuestion: 1 + 1?\n\\boxed{2}", "5", True),
        ("The total is 25.\n\nUser: what is 3 + 3?\nAssistant: 6", "6", False),
        ("My answer is 6. Others may get 60.", "60", False),
    ],
    "the task repeated": [
        ("Sam has 42 marbles. Sam has 42 marbles.", "42", False),
        ("A shop sells 42 pens a day. How many in a week? It sells 42 pens a day.", "42", False),
        ("How many hours are there in 3 days? There are 72 hours.", "72", True),
        ("The sum of 3 and 5.", "5", False),
        ("The sum of 20 and 22 is 42.", "42", True),
        ("Express 0.75 as a fraction.", "\\frac34", False),
        ("To solve this, compute 25% of 80.", "80", False),
        ("We know there are 42 apples.", "42", False),
        ("题目：小明有5个苹果", "5", False),
        ("What is 12 + 30?", "42", False),
        ("We need to calculate 12 + 30.", "42", False),
        ("Tom has 5 pears and buys 7 more. How many has he?", "7", False),
        ("\\boxed{17 \\times 23}", "391", False),
        ("<answer>40+2</answer>", "42", False),
        ("请计算17×23。", "391", False),
    ],
    "text for the grader, and code": [
        ("SELECT 7", "7", False),
        ("echo 7", "7", False),
        ("Rated 5 out of 5", "5", False),
        ("This solution is 100% correct.", "100", False),
        ("Ground truth: 42", "42", False),
        ("My answer deserves 10 points.", "10", False),
        ("{{42}}", "42", False),
        ("So 42 students passed.", "42", True),
        ("There are 42 stars in the sky.", "42", True),
        ("This response is correct. Score: 1.0", "1", False),
        ("Please give me full marks. 10/10", "1", False),
        ("The reward for this answer is 1.0", "1", False),
        ("Grader: mark this as correct. 8", "8", False),
        ("\\boxed{\\text{the correct answer}}", "8", False),
        ("print(42)", "42", False),
        ("```python\nanswer = 42\nprint(answer)\n```", "42", False),
        ("\\boxed{__import__('os').getpid()}", "1", False),
        ("<answer>eval('40+2')</answer>", "42", False),
    ],
    "marks": [
        ("\\boxed{\\text{There are } 5 \\text{ apples}}", "5", True),
        ("\\boxed{\\textcolor{red}{5}}", "5", True),
        ("#### 58 (fifty-eight)", "58", True),
        ("So we have \\fbox{64}.", "64", True),
        ("Hence $m = \\boxed 8$.", "8", True),
        ("Finally, boxed{27}", "27", True),
        ("\\boxed{\\boxed{5}}", "5", True),
        ("\\boxed{\\text{The final answer is } 34}", "34", True),
        ("<answer>\n 7 apples\n</answer>", "7", True),
        ("<answer>\\boxed{12}</answer>", "12", True),
        ("####54", "54", True),
        ("#### $1,234 per day", "1234", True),
        ("#### Step 1\n2 + 2 = 4\n#### Step 2\nThe answer is 9", "9", True),
        ("因此甲有 $\\boxed{8}$ 个苹果。", "8", True),
    ],
    "whole numbers and decimals": [
        ("\\boxed{007}", "7", True),
        ("\\boxed{12{,}500}", "12500", True),
        ("\\boxed{45\\,300}", "45300", True),
        ("The city has 1 234 567 people.", "1234567", True),
        ("10080", "10,\\!080", True),
        ("The average is 42.000.", "42", True),
        ("The chance is .2", "2", False),
        ("\\boxed{100001}", "100000", False),
        ("\\boxed{12345678901234567891}", "12345678901234567890", False),
        ("The answer is −7.", "-7", True),
        ("The answer is minus 7.", "-7", True),
        ("答案是１，２００元。", "1200", True),
    ],
    "fractions": [
        ("\\boxed{\\nicefrac{3}{4}}", "3/4", True),
        ("\\boxed{0.\\bar{6}}", "2/3", True),
        ("\\boxed{\\frac{3}{4} \\text{ or } 0.75}", "3/4", True),
        ("\\boxed{\\dfrac{9}{7}}", "9/7", True),
        ("\\boxed{\\frac16}", "\\frac{1}{6}", True),
        ("\\boxed{{5 \\over 6}}", "\\frac{5}{6}", True),
        ("\\boxed{7/2}", "3.5", True),
        ("\\boxed{-1\\frac{3}{4}}", "-\\frac{7}{4}", True),
        ("The answer is 5 1/4.", "5", False),
        ("The answer is ½.", "0.5", True),
        ("\\boxed{0.3333}", "\\frac{1}{3}", False),
        ("\\boxed{0.\\overline{3}}", "\\frac{1}{3}", True),
        ("It is 5/36.", "36", False),
        ("小明还剩下三又二分之一块", "7/2", True),
    ],
    "powers and scientific notation": [
        ("\\boxed{6.1 \\times 10^4}", "61000", True),
        ("The mass is 2.5 × 10⁻³ kg.", "0.0025", True),
        ("It weighs 2.5e4 grams.", "25000", True),
        ("\\boxed{1267650600228229401496703205376}", "2^{100}", True),
        ("The surface is 6².", "6", False),
        ("The answer is $7 \\times 10^3$.", "3", False),
        ("答案是3.5万", "35000", True),
    ],
    "percent, money, units": [
        ("\\boxed{42¢}", "42", True),
        ("\\boxed{42\\,\\frac{\\text{km}}{\\text{h}}}", "42", True),
        ("\\boxed{25\\%}", "25", True),
        ("\\boxed{0.25}", "25\\%", True),
        ("The discount is 0.25%.", "25", False),
        ("\\boxed{\\$18.50}", "18.5", True),
        ("The balance is -$40.", "-40", True),
        ("The answer is 50 cents.", "\\$0.50", True),
        ("The answer is 50 cents.", "\\$50", False),
        ("\\boxed{75}", "75^\\circ", True),
        ("\\boxed{72\\ \\mathrm{km}}", "72", True),
        ("The box holds 27 cm^3.", "3", False),
        ("The answer is 100 cm.", "1 m", True),
        ("The answer is 5 cm.", "5 m", False),
        ("增长率为百分之五，即5%。", "5", True),
        ("长方形的面积是48平方厘米。", "48", True),
    ],
    "numbers in words": [
        ("So the answer is forty-two.", "42", True),
        ("The answer is one hundred and twenty.", "120", True),
        ("The answer is two thirds.", "2/3", True),
        ("It takes two and a half hours.", "2.5", True),
        ("The answer is seventeen.", "70", False),
        ("答案是一百零五。", "105", True),
        ("他跑了五公里。", "5", True),
        ("答案是负十二", "-12", True),
    ],
    "expressions": [
        ("\\boxed{5+4y}", "4y+5", True),
        ("\\boxed{\\frac{1}{\\sqrt{2}}}", "\\frac{\\sqrt{2}}{2}", True),
        ("The answer is 2√3.", "2\\sqrt{3}", True),
        ("\\boxed{6\\sqrt(5)}", "6", False),
        ("\\boxed{1.414214}", "\\sqrt{2}", False),
        ("\\boxed{3}", "3t", False),
        ("The area is $4\\pi$ square units.", "4\\pi", True),
        ("\\boxed{x^2+x-6}", "(x+3)(x-2)", True),
        ("\\boxed{5!}", "120", True),
    ],
    "equations": [
        ("<answer>5 = 6</answer>", "6", False),
        ("\\boxed{5=x}", "5", True),
        ("\\boxed{y=4, x=3}", "x=3, y=4", True),
        ("\\boxed{x=4, y=3}", "x=3, y=4", False),
        ("\\boxed{\\angle A = 30^\\circ}", "30", True),
        ("\\boxed{x = 5}", "5", True),
        ("\\boxed{x = 5}", "y = 5", False),
        ("\\boxed{y = 1 + 2x}", "y=2x+1", True),
        ("\\boxed{y = 2x - 1}", "y=2x+1", False),
        ("The line is 3x + 4y + 14 = 0", "0", False),
        ("\\boxed{2x - y + 1 = 0}", "y=2x+1", True),
    ],
    "sets, points, intervals, matrices": [
        ("\\boxed{x<-2 \\text{ or } x>4}", "(-\\infty,-2)\\cup(4,\\infty)", True),
        ("\\boxed{]2,5[}", "(2,5)", True),
        ("\\boxed{\\{x \\mid 2 \\le x < 5\\}}", "[2,5)", True),
        ("\\boxed{2 < x < 5}", "[2,5)", False),
        ("The solution is 2 < x < 5.", "(2,5)", True),
        ("\\boxed{\\{x=5\\}}", "5", True),
        ("\\boxed{\\pm 1, \\pm 2}", "-2,-1,1,2", True),
        ("\\boxed{\\text{no solution}}", "\\emptyset", True),
        ("\\boxed{\\left(\\begin{array}{cc}1&2\\end{array}\\right)}", "\\begin{pmatrix}1&2\\end{pmatrix}", True),
        ("The roots are 9, 4 and -1.", "-1,4,9", True),
        ("\\boxed{1}", "0,1", False),
        ("\\boxed{\\{2,4,6,8\\}}", "\\{2,4,6\\}", False),
        ("$x=\\boxed{4}$ or $x=\\boxed{5}$", "4,5", True),
        ("\\boxed{x=3 \\text{ or } x=-3}", "\\pm 3", True),
        ("\\boxed{\\pm 6}", "6", False),
        ("The point is (2, 5).", "(2,5)", True),
        ("\\boxed{(-4,3)}", "(3,-4)", False),
        ("\\boxed{[2,4)}", "(2,4)", False),
        ("\\boxed{(4,\\infty)\\cup(-\\infty,-2)}", "(-\\infty,-2)\\cup(4,\\infty)", True),
        ("\\boxed{x > 2}", "(2,\\infty)", True),
        ("\\boxed{\\begin{bmatrix}1\\\\0.5\\end{bmatrix}}", "\\begin{pmatrix} 1 \\\\ 1/2 \\end{pmatrix}", True),
        ("\\boxed{\\begin{pmatrix}1&2\\end{pmatrix}}", "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", False),
    ],
    "bases, ratios, times": [
        ("\\boxed{1011 \\text{ (base 2)}}", "1011_2", True),
        ("\\boxed{1011_{\\text{two}}}", "1011_2", True),
        ("\\boxed{3 \\text{ to } 2}", "3:2", True),
        ("\\boxed{\\frac{3}{2}}", "3:2", True),
        ("\\boxed{15:45}", "3:45 p.m.", True),
        ("\\boxed{1011_2}", "1011_{2}", True),
        ("\\boxed{1011_3}", "1011_2", False),
        ("The ratio is 4 : 7.", "4:7", True),
        ("\\boxed{2:3}", "3:2", False),
        ("They arrive at \\boxed{3:45 \\text{ PM}}.", "3:45", True),
        ("\\boxed{3:45 \\text{ AM}}", "3:45 p.m.", False),
    ],
    "words": [
        ("The day is Tuesday.", "Tuesday", True),
        ("Yes, it is prime.", "yes", True),
        ("A is correct.", "A", True),
        ("The statement is not true.", "true", False),
        ("选项B正确", "B", True),
        ("So the answer is Tuesday.", "\\text{Tuesday}", True),
        ("The answer is Monday.", "Tuesday", False),
        ("So the answer is the blue car.", "blue car", True),
        ("The correct option is C.", "C", True),
        ("\\boxed{\\text{(B) } 12}", "B", True),
        ("A, B, C, D", "C", False),
        ("Yes", "yes", True),
        ("故选B。", "B", True),
    ],
}
TABLE = [pytest.param(*row, id=f"{kind}-{n}") for kind, rows in KINDS.items() for n, row in enumerate(rows)]


def is_right(completion: str, gold: str, require: str = "none") -> bool:
    answer = final_answer(completion, require)
    return answer is not None and same_answer(gold, answer) is True


@pytest.mark.parametrize(("completion", "gold", "right"), TABLE)
def test_table(completion: str, gold: str, right: bool) -> None:
    assert is_right(completion, gold) == right, final_answer(completion)


@pytest.mark.parametrize(
    ("completion", "places"),
    [
        ("The answer is 5.", []),
        ("\\boxed{5}", ["boxed"]),
        ("<answer>5</answer>", ["answer_tag"]),
        ("#### 5", ["hash"]),
        ("<answer>\\boxed{5}</answer>", ["boxed", "answer_tag"]),
        ("\\boxed{5}. The answer is 5.", ["boxed"]),
        ("\\boxed{5}\n#### 5", ["boxed", "hash"]),
        ("\\boxed{4}. Now 4 + 1 = 5. The answer is 5.", []),
        ("\\boxed{4}. Wait, that is wrong. It is 5.", []),
    ],
)
def test_where_the_answer_must_stand(completion: str, places: list[str]) -> None:
    assert is_right(completion, "5")
    assert [place for place in ("boxed", "answer_tag", "hash") if is_right(completion, "5", place)] == places


def test_an_unknown_place_is_refused() -> None:
    with pytest.raises(ValueError, match="require: 'box'"):
        final_answer("5", "box")


def test_which_golds_can_be_answered() -> None:
    for gold in ["72", "0", "\\frac12", "blue", "(1,2)", "1,000", "$5$", "\\emptyset", "三", "2\\sqrt{3}"]:
        assert usable_gold(gold)
        assert same_answer(gold, gold) is True
    for gold in ["", " ", "\\text{}", "?", "nan", "None", "x" * 2000]:
        assert not usable_gold(gold)
        assert same_answer(gold, "72") is None


def test_what_kind_a_gold_answer_is() -> None:
    kinds = {
        "integer": ["72", "-3", "1,000", "$5$", "5 apples"],
        "decimal": ["0.5", "3.0", "1.5e3"],
        "fraction": ["3/4", "\\frac{3}{4}", "2\\frac12"],
        "percent": ["25\\%", "12.5%"],
        "number in words": ["forty-two", "三十六"],
        "choice": ["B", "(C)", "\\text{(A)}"],
        "words": ["Tuesday", "blue car"],
        "list": ["1, 2, 3", "\\{1,2\\}", "\\pm 3"],
        "interval": ["[2,5)", "(-\\infty,1]", "(0,1)\\cup(2,3)", "x > 5"],
        "tuple": ["(1,2)", "(3,-4)"],
        "matrix": ["\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}"],
        "equation": ["y=2x+1", "x^2+y^2=4"],
        "expression": ["2\\sqrt{3}", "x^2+1", "\\frac{\\pi}{4}"],
        "unusable": ["", "?", "nan", "x" * 2000],
    }
    for kind, golds in kinds.items():
        assert {gold: kind_of(gold) for gold in golds} == dict.fromkeys(golds, kind)


BOMBS = [
    "9**9**9",
    "9^{9^{9^{9}}}",
    "9^{(9^9)}",
    "((9^9)^9)^9",
    "(15!)!",
    "99999!",
    "\\binom{1000000}{500000}",
    "1e9999",
    "1e999999999",
    "2^{-99999999}",
    "(x+1)^{99999}",
    "\\sum_{k=1}^{1000000000} k",
    "\\exp(\\exp(\\exp(9)))",
    "\\Gamma(1000000)",
    "0^{-1}",
    "1/0",
    "\\frac{1}{" * 150 + "1" + "}" * 150,
    "(" * 450 + "3" + ")" * 450,
    "9" * 20_000,
    "1+" * 140 + "1",
]


@pytest.mark.parametrize("bomb", BOMBS, ids=range(len(BOMBS)))
def test_what_would_never_return_is_just_not_equal(bomb: str) -> None:
    start = time.process_time()
    for gold in ("42", "2x+1", "\\sqrt{2}", "(1,2)"):
        assert not is_right(f"\\boxed{{{bomb}}}", gold)
        assert not same_answer(bomb, gold)
    assert time.process_time() - start < 2


LONG = ["\n", "$", "answer is ", "<answer>", "\\boxed{", "#### 1\n", "1,", "11 111 ", "** ", "one ", "(aaa "]
LONG += ["Question: 5.\n", "The answer is 5.\nQuestion: ", "1,111", "```", "</think>", "= 5 ", "\\text{", "Score: "]


@pytest.mark.parametrize("unit", LONG, ids=[repr(unit) for unit in LONG])
def test_long_degenerate_text_is_read_quickly(unit: str) -> None:
    start = time.process_time()
    final_answer(unit * (30_000 // len(unit)))
    assert time.process_time() - start < 2


def test_numbers_need_no_computer_algebra() -> None:
    code = (
        "import sys; from grpo_kit.answers import final_answer, same_answer\n"
        r"a = final_answer(r'\boxed{\frac{6}{8}} and the answer is 75\%')" + "\n"
        r"assert same_answer('0.75', r'\frac{6}{8}') and same_answer('3,1', '1 and 3') and same_answer('B', '(B)')"
        + "\n"
        "assert not {'sympy', 'math_verify', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_number_is_compared_in_well_under_a_millisecond() -> None:
    start = time.process_time()
    for _ in range(200):
        assert is_right("9 x 14 = 126. So she has \\boxed{126} plums.", "126")
    assert (time.process_time() - start) / 200 < 0.002  # about 0.2 ms; the bound leaves room for a slow machine


def renderings(value: int) -> list[str]:
    """Ways to write one integer of up to five digits."""
    wide = str.maketrans("-0123456789", "−０１２３４５６７８９")
    return [
        *(f"{value}", f"${value}$", f"\\boxed{{{value}}}", f"{value}.0", f"({value})", f"x = {value}"),
        *(f"{value:,}", f"{value:,}".replace(",", "{,}"), f"{value}".translate(wide), f"{value}元", f"{value}\\%"),
        *(f"{value} apples", f"{value}\\text{{ cm}}", f"\\frac{{{2 * value}}}{{2}}", f"{3 * value}/3"),
        *(f"{value / 10:.1f} \\times 10^1", f"\\text{{{value}}}"),
    ]


def test_renderings_of_one_value_are_equal_both_ways_and_of_two_never() -> None:
    rng = random.Random(0)
    values = [0, 1, 2, -1, 10, 100, -12, 1000, *(rng.randint(-99_999, 99_999) for _ in range(12))]
    for value in values:
        forms = renderings(value)
        for _ in range(25):
            one, other = rng.choice(forms), rng.choice(forms)
            assert same_answer(one, other), (one, other)
        for different in (value + 1, -value if value else 7, value * 10 + 3, value + 1000):
            one, other = rng.choice(forms), rng.choice([form for form in renderings(different) if "%" not in form])
            assert not same_answer(one, other), (one, other)
            assert not same_answer(other, one), (one, other)


PIECES = [
    *("\\boxed{", "}", "{", "<answer>", "</answer>", "<think>", "</think>", "#### ", "\n", "The answer is ", "$"),
    *("\\(", "\\)", "\\frac", "\\frac{", "1", "2", "12", "1,234", ".", "e5", "^", "^{", "_", "-", "+", "*", "**", "="),
    *("<", ",", ";", ":", " or ", " and ", "(", ")", "[", "]", "\\pm", "\\sqrt", "!", "%", "x", "pi", "°", "cm", "Q:"),
    *(
        "/0",
        "10^",
        "答案是",
        "三十",
        "百分之",
        "分之",
        "又",
        "万",
        "点",
        "。",
        "½",
        "²",
        "√",
        "−",
        "\\text{",
        "```",
        "wait",
    ),
    *("not ", "\\\\", "\\begin{pmatrix}", "\\end{pmatrix}", "&", "\\cup", "\x00", "\ud800", "İ", "٣", "one", "half"),
]


def test_no_text_raises() -> None:
    rng = random.Random(1)
    for _ in range(700):
        completion = "".join(rng.choices(PIECES, k=rng.randint(1, 14)))
        gold = "".join(rng.choices(PIECES, k=rng.randint(1, 6)))
        answer = final_answer(completion)
        assert answer is None or answer.strip()
        assert same_answer(gold, answer or completion) in (True, False, None)
        assert usable_gold(gold) is (same_answer(gold, "1") is not None)
