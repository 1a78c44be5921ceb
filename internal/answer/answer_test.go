package answer_test

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"temper/internal/answer"
)

// question is one row of the tables.
type question struct {
	answer, truth string
	equal         bool
}

// exact are the questions that need no call.
func exact() []question {
	return []question{
		// Numbers.
		{"116", "116", true}, {" 116 ", "116", true}, {"0116", "116", true}, {"+5", "5", true}, {"-5", "-5", true},
		{"117", "116", false}, {"-116", "116", false}, {"116.0", "116", true}, {"116.5", "116", false}, {".5", "1/2", true},
		{"0.5", `\frac{1}{2}`, true}, {"0.33", "1/3", false}, {"0.333333333", `\frac13`, false}, {"2/4", "1/2", true},
		{`\dfrac{3}{4}`, "0.75", true}, {`\frac34`, "3/4", true}, {`-\frac{3}{4}`, `\frac{-3}{4}`, true}, {`\frac{3}{-4}`, "-3/4", true},
		{"1e3", "1000", true}, {"1.5E-3", "0.0015", true}, {`1.5\times 10^{3}`, "1500", true}, {"1e-4000", "0", false},
		{"\u22125", "-5", true}, {"1 1/2", "3/2", true}, {`1\frac{1}{2}`, "1.5", true}, {`2\frac{3}{2}`, "3", true}, {"-1 1/2", "-1.5", true},
		{"2^10", "1024", true}, {"2**10", "1024", true}, {"2^{-1}", "0.5", true}, {"2^3^2", "512", true}, {"(2^3)^2", "64", true},
		{"4^{1/2}", "2", true}, {`\sqrt{16}`, "4", true}, {`\sqrt{9/4}`, "1.5", true}, {`\sqrt 4`, "2", true}, {"sqrt(49)", "7", true},
		{"5!", "120", true}, {`\binom{5}{2}`, "10", true}, {"|-3|", "3", true}, {"2|-3|", "6", true}, {"2(3+4)", "14", true}, {"12/3/2", "2", true},
		{strings.Repeat("0", 2000) + "1", "1", true}, {strings.Repeat("9", 2000), strings.Repeat("9", 1999) + "8", false},
		// Separators of thousands.
		{"1,234", "1234", true}, {"1{,}234{,}567", "1234567", true}, {`1\,234`, "1234", true}, {"12,34", "1234", false}, {"1,234.5", "1234.5", true},
		{"1234,567", "1234567", false}, {"1, 234", "1234", false}, {"(1,234)", "1234", false}, {"(1,234)", "(1, 234)", true},
		// Signs around the answer.
		{`\boxed{42}`, "42", true}, {`so \boxed{1} no \boxed{\frac{1}{2}}.`, "0.5", true}, {`\fbox{7}`, "7", true}, {"$7$", "7", true}, {`\$7`, "7", true}, {"42.", "42", true},
		{`\(7\)`, "7", true}, {`5\text{ cm}`, "5", true}, {`5 \mathrm{cm}^2`, "5", true}, {`30^\circ`, "30", true}, {"30\u00b0", "30", true}, {`\left(1,2\right)`, "(1,2)", true},
		{"x = 5", "5", true}, {"5", "x=5", true}, {"y = 5", "6", false}, {"f(x) = x", "x", true}, {"x=5", "5=x", true}, {"x=5", "y=5", false}, {"x = 2y", "y = x/3", false},
		// Percent.
		{"50%", "0.5", true}, {`50\%`, "50", true}, {"50%", "50%", true}, {"50%", "60%", false}, {"0.5", "50%", true}, {"5", "50%", false}, {"150%", "1.5", true}, {`\sqrt{2}%`, `\sqrt{2}`, true},
		// Lists.
		{"(1, 2)", "(1,2)", true}, {"(1,2)", "(2,1)", false}, {"[1,2]", "(1,2)", false}, {"[1,2)", "[1,2)", true}, {"(1,2]", "(1,2)", false}, {"[5]", "5", false},
		{`\{1,2\}`, `\{2,1\}`, true}, {"{1, 2}", `\{2, 1\}`, true}, {"1, 2", "2, 1", true}, {"1,2", `\{1,2\}`, true}, {"1, 2, 2", "1, 2", true}, {"1, 2", "1, 3", false},
		{"1, 2", "(1, 2)", true}, {"2, 1", "(1, 2)", false}, {"1, 2", "1, 2, 3", false}, {"1 and 2", "2, 1", true}, {"x=1 or x=2", "1, 2", true}, {`1 \text{ or } 2`, "1, 2", true},
		{`\pm 2`, "2, -2", true}, {`1\pm 2`, "3, -1", true}, {`1\pm\sqrt{3}`, `1-\sqrt{3}, \sqrt{3}+1`, true}, {`\pm 2`, "2", false}, {`\emptyset`, `\{\}`, true}, {`\emptyset`, "0", false},
		{"(0.5, 1/2)", `(\frac{1}{2}, 0.5)`, true}, {"((1,2),3)", "(1,2,3)", false},
		{`(-\infty, 1) \cup (2, \infty)`, `(2,\infty)\cup(-\infty,1)`, true}, {`(-\infty, 1)`, `(-\infty, 1]`, false},
		{"x < 5", "5 > x", true}, {`x \le 5`, `5 \geq x`, true}, {"x < 5", `x \le 5`, false}, {"x<5", "x<6", false},
		// Variables and words.
		{"x+1", "1+x", true}, {"2x", `x\cdot 2`, true}, {"x", "y", false}, {"x", "5", false}, {"x_1", "x_{1}", true}, {"x_1", "x_2", false}, {"ab", "ba", true}, {"x/x", "1", true}, {`\pi/2`, `0.5\pi`, true}, {"2x", "3x", false}, {"x^2", "x", false}, {"2x/y", "2y/x", false},
		{"(a+b)(b+c)(c+a)", "(a+c)(c+b)(b+a)", true},
		{"Yes", "yes", true}, {`\text{Yes}`, "yes", true}, {"no", "yes", false}, {"(A)", "A", true}, {`\text{(B)}`, "(B)", true}, {"A", "B", false}, {"no solution", "No  Solution", true},
		{"listen", "silent", false}, {"k116", "116", false}, {"k116", "k116", true}, {"", "5", false}, {"5", "5 6", false}, {"1 2 3", "123", false},
		{`\frac{1}{`, "1", false}, {`\frac{1}{`, `\frac{1}{ `, true}, {"[object]", "1", false}, {"1_16", "116", false},
	}
}

// algebra are the questions that values at random points decide.
func algebra() []question {
	return []question{
		{`2\sqrt{2}`, `\sqrt{8}`, true}, {`\sqrt{2}`, "1.41421356237", false}, {`\frac{1}{\sqrt{2}}`, `\frac{\sqrt{2}}{2}`, true}, {`\sqrt{7}`, `\sqrt{8}`, false},
		{"(x+1)^2", "x^2+2x+1", true}, {"(x+1)^2", "x^2+1", false}, {`\frac{x^2-1}{x-1}`, "x+1", true},
		{"sin^2 x + cos^2 x", "1", true}, {`\sin(2x)`, `2\sin x\cos x`, true}, {`\sin 2x`, `\sin x`, false}, {`\pi`, "3.14159", false}, {`\sin\pi`, "0", true},
		{`\log_2 8`, "3", true}, {`\ln(e^3)`, "3", true}, {"i^2", "-1", true}, {`e^{i\pi}`, "-1", true}, {`\sqrt{x^2}`, "x", false}, {`\sqrt{x^2}`, "|x|", true}, {`\arctan 1`, `\frac{\pi}{4}`, true},
		{`(\sqrt{8}, 1)`, `(2\sqrt{2}, 1)`, true}, {`\{\sqrt{8}, 1\}`, `\{1, \sqrt{7}\}`, false},
		{`\binom{n+1}{2}`, `\frac{n(n+1)}{2}`, true}, {`\binom{n+1}{2}`, `\frac{n(n-1)}{2}`, false}, {"n(n-1)!", "n!", true}, {"(n+1)!", "n!", false}, {`\binom{n}{k}`, `\frac{n!}{k!(n-k)!}`, true},
		{"e^{x+10^{-20}}", "e^x", false}, {`e^{x+1}`, `e\cdot e^x`, true}, {`\sinh x`, `\frac{e^x-e^{-x}}{2}`, true}, {`\tan x`, `\frac{\sin x}{\cos x}`, true}, {`\cot x`, `\frac{1}{\tan x}`, true},
		{`\arcsin x + \arccos x`, `\frac{\pi}{2}`, true}, {`\cos(\arccos x)`, "x", true}, {`\tan(\arctan x)`, "x", true}, {`\ln(x^2)`, `2\ln|x|`, true}, {`\log_{10} 1000`, "3", true}, {`2^{x+3}`, `8\cdot 2^x`, true},
		{`(1+\sqrt 2)^{100}(\sqrt 2-1)^{100}`, "1", true}, {`\sqrt{3+2\sqrt{2}}`, `1+\sqrt{2}`, true}, {`\sqrt{5+2\sqrt{6}}`, `\sqrt2+\sqrt3`, true}, {`\sqrt[3]{2+\sqrt5}+\sqrt[3]{2-\sqrt5}`, "1", true},
		{`\sin 10^{40}`, `\sin(10^{40}+1)`, false}, {`\cos(x+10^{30}\pi)`, `\cos x`, true}, {`e^{\pi\sqrt{163}}`, "262537412640768744", false},
	}
}

// forms are the ways to write an answer; see the rules of Math.
func forms() []question {
	return []question{
		// Matrices.
		{`\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}`, `\begin{bmatrix}1&2\\3&4\end{bmatrix}`, true}, {`\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}`, `\begin{pmatrix} 1 & 3 \\ 2 & 4 \end{pmatrix}`, false},
		{`\begin{pmatrix} 1/2 \\ 3 \end{pmatrix}`, `\begin{pmatrix} 0.5 \\ \sqrt{9} \end{pmatrix}`, true}, {`\begin{pmatrix} 1 \\ 2 \end{pmatrix}`, `\begin{pmatrix} 1 & 2 \end{pmatrix}`, false}, {`\begin{array}{cc}1&0\\0&1\end{array}`, `\begin{pmatrix}1&0\\0&1\end{pmatrix}`, true}, {`\begin{pmatrix}1&2\\3\end{pmatrix}`, "6", false},
		// Sums, products, floors.
		{`\sum_{k=1}^{10} k`, "55", true}, {`\sum_{k=1}^{10} k`, "45", false}, {`\sum_{k=1}^{n} k`, `\frac{n(n+1)}{2}`, true}, {`\sum_{k=1}^{n} k^2`, `\frac{n(n+1)(2n+1)}{6}`, true}, {`\sum_{k=1}^{n} k^2`, `n^2`, false}, {`\prod_{k=1}^{5} k`, "120", true}, {`\prod_{k=1}^{n} k`, "n!", true},
		{`\lfloor 3.7 \rfloor`, "3", true}, {`\lceil 3.2 \rceil`, "4", true}, {`\lfloor -3.5 \rfloor`, "-4", true}, {`\lfloor \sqrt{10} \rfloor`, "3", true}, {`\lfloor \pi^2 \rfloor`, "10", false}, {`\lceil -\sqrt2 \rceil`, "-1", true}, {`\left\lfloor \frac{7}{2} \right\rfloor`, "3", true},
		// Ratios.
		{"1:2", "2:4", true}, {"1:2", "1/2", true}, {"1:2", "2:1", false}, {"3:4:5", "6:8:10", true}, {"3:4:5", "3:4:6", false}, {"1:2", "3", false}, {`\sqrt2:1`, `2:\sqrt2`, true},
		// Chains.
		{"x = 5+6 = 11", "11", true}, {"x = 5+6 = 11", "5", false}, {"5+6=11", "11", false}, {`x = \sqrt{2} \approx 1.414`, `\sqrt{2}`, true}, {`\sqrt{2} \approx 1.414`, `\sqrt{2}`, true}, {`\sqrt{2} \approx 1.414`, "1.414", true}, {`\sqrt{2} \approx 1.414`, "1.5", false}, {`\approx 1.414`, "1.414", true}, {"2+3 = 4+1 = 5", "5", true},
		// Inequalities, intervals, unions.
		{`x < 5`, `(-\infty, 5)`, true}, {`x \le 5`, `(-\infty, 5)`, false}, {`x \leqslant 5`, `(-\infty, 5]`, true}, {"5 > x", `(-\infty,5)`, true}, {"x > 2", `(2, \infty)`, true}, {"x > 2", `(2, +\infty)`, true}, {`1 < x \le 2`, "(1, 2]", true}, {`2 \ge x > 1`, "(1,2]", true}, {"1 < x < 2", "[1,2]", false}, {"1 < x < 2", "1 < y < 2", false},
		{`x \in [1, 5]`, "[1,5]", true}, {`x \in (1,2) \cup (3,4)`, `(1,2)\cup(3,4)`, true}, {`x \in [1,5]`, `1 \le x \le 5`, true}, {`x < 1 \text{ or } x > 5`, `(-\infty, 1) \cup (5, \infty)`, true}, {`x < 1 \text{ or } x > 5`, `(-\infty, 1] \cup (5, \infty)`, false},
		{`[1,3) \cup [3,5]`, "[1,5]", true}, {`(1,3) \cup (3,5)`, "(1,5)", false}, {`(1,4) \cup (2,5)`, `(1,2] \cup (2, 5)`, true}, {`(-\infty, 0] \cup [0, \infty)`, `\mathbb{R}`, true}, {`(-\infty, \infty)`, `\mathbb{R}`, true}, {`(-\infty, 0) \cup (0, \infty)`, `\mathbb{R}`, false}, {`[0, \sqrt2]`, `0 \le x \le \sqrt{2}`, true}, {`x \lt 3`, "x<3", true}, {`x \geqslant \frac12`, `[0.5, \infty)`, true},
		// Equations.
		{"2x + 3y = 6", "4x+6y=12", true}, {"2x+3y=6", "4x+6y=13", false}, {"y = 2x + 1", "2x - y + 1 = 0", true}, {"y = 2x+1", "y = 2x+2", false}, {"x^2+y^2=1", "y^2 = 1 - x^2", true}, {"x = 2y", "y = x/2", true}, {"2x = 10", "x = 5", true}, {"x=5", "y=5", false},
		{"(p,q) = (3,2)", "(3,2)", true}, {"p=3, q=2", "(3,2)", true}, {"(p,q)=(3,2)", "p=3, q=2", true}, {"(p,q) = (2,3)", "(3,2)", false}, {"(p, q) = (3, 2)", "(q, p) = (2, 3)", true},
		// Degrees, roots, typesetting.
		{`\sin 30^\circ`, "1/2", true}, {`\sin 30^\circ`, `\sin 30`, false}, {`\cos 60^{\circ}`, "0.5", true}, {`\tan(45^\circ)`, "1", true}, {`30^\circ`, "30", true}, {`\sqrt[3]{-8}`, "-2", true}, {`\sqrt[3]{8}`, "2", true}, {`\sqrt[5]{32}`, "2", true}, {`\sqrt[3]{-2}`, `-\sqrt[3]{2}`, true}, {`\sqrt[4]{16}`, "2", true}, {`\sqrt[3]{2}`, "2^{1/3}", true},
		{`{1 \over 2}`, "0.5", true}, {`{x+1 \over x}`, `1+\frac1x`, true}, {`\mathbf{5}`, "5", true}, {"**204**", "204", true}, {`\boldsymbol{x}`, "x", true}, {`\overline{AB}`, "AB", true}, {`0.\overline{3}`, "1/3", true}, {`0.1\overline{6}`, "1/6", true}, {`1.\overline{09}`, "12/11", true}, {`0.\overline{3}`, "0.3", false},
		{"101_2", "5", true}, {"101_{2}", "101_2", true}, {"101_2", "101_3", false}, {"102_2", "5", false}, {"1 000", "1000", true}, {"12 345 678", "12345678", true}, {"1 000 00", "100000", false}, {"5 cm", "5", true}, {"5 square meters", "5", true}, {"60 miles per hour", "60", true}, {"12 cm^2", "12", true},
		{"30 degrees", "30", true}, {"28 percent", "28", true}, {"28 percent", "0.28", true}, {"\u20ac5", "5", true}, {"\u00bd", "1/2", true}, {"2\u00bd", "5/2", true}, {"\uff11\uff12\uff13", "123", true}, {"\uff085\uff0c6\uff09", "(5,6)", true}, {`\lvert -3 \rvert`, "3", true},
		{"x y", "xy", true}, {"5 m", "5", false}, {"n m", "mn", true}, {"3 apples", "3", true},
	}
}

// more are further ways to write answers, by form.
func more() []question {
	return []question{
		// Matrices.
		{`\left[\begin{array}{cc} 1 & 2 \\ 3 & 4 \end{array}\right]`, `\begin{pmatrix}1&2\\3&4\end{pmatrix}`, true}, {`\begin{bmatrix} x+1 \\ 2x \end{bmatrix}`, `\begin{pmatrix} 1+x \\ x\cdot 2 \end{pmatrix}`, true}, {`\begin{pmatrix}1&0\\0&1\end{pmatrix}`, `\begin{pmatrix}0&1\\1&0\end{pmatrix}`, false}, {`\begin{pmatrix} -\frac12 \\ 7 \end{pmatrix}`, `\begin{pmatrix} -0.5 \\ 7 \end{pmatrix}`, true}, {`\begin{pmatrix}1&2&3\end{pmatrix}`, `\begin{pmatrix}1&2\end{pmatrix}`, false}, {`\begin{vmatrix}1&2\\3&4\end{vmatrix}`, `\begin{vmatrix}1&2\\3&5\end{vmatrix}`, false},
		// Sums, products, floors, ceilings.
		{`\sum_{i=0}^{4} 2^i`, "31", true}, {`\sum_{i=0}^{4} 2^i`, "32", false}, {`\sum_{k=1}^{n} (2k-1)`, "n^2", true}, {`\sum_{k=0}^{n} 2^k`, `2^{n+1}-1`, true}, {`\sum_{k=0}^{n} 2^k`, `2^{n}-1`, false}, {`\sum_{k=1}^{n} k^3`, `\left(\frac{n(n+1)}{2}\right)^2`, true}, {`\prod_{k=1}^{4} (2k)`, "384", true}, {`\prod_{k=2}^{5} k`, "24", false}, {`\lfloor -0.5 \rfloor`, "-1", true}, {`\lfloor -0.5 \rfloor`, "0", false}, {`\lceil \pi \rceil`, "4", true}, {`\lceil 5 \rceil`, "5", true}, {`\lfloor 2\sqrt{6} \rfloor`, "4", true}, {`\left\lceil \frac{10}{3} \right\rceil`, "4", true},
		// Ratios.
		{"10:15", "2:3", true}, {"10:15", "3:2", false}, {`\frac12:\frac13`, "3:2", true}, {"2:3:4", "4:6:8", true}, {"2:3:4", "2:3", false}, {"12:00", "1:00", false}, {"12:00", "12:00", true}, {"7:30", "7:35", false}, {"0.5:1", "1/2", true}, {"a:b", "2a:2b", true},
		// Chains and approximations.
		{"y = 3 \\cdot 4 = 12", "12", true}, {"y = 3 \\cdot 4 = 12", "y=12", true}, {"y = 3 \\cdot 4 = 12", "13", false}, {`\pi \approx 3.14`, `\pi`, true}, {`\pi \approx 3.14`, "3.14", true}, {`\pi \approx 3.14`, "3.1", false}, {`x \approx 2.5`, "2.5", true}, {`n = 2^5 = 32`, "32", true}, {`S = \frac{1}{2}\cdot 6\cdot 4 = 12`, "12", true}, {`x \approx 2.5`, "2.6", false},
		// Inequalities, intervals, unions.
		{"-x < -1", "x > 1", true}, {"-x < -1", "x < 1", false}, {"2x \\le 10", "x \\le 5", true}, {"-3x \\ge 6", "(-\\infty, -2]", true}, {"-3x \\ge 6", "[-2, \\infty)", false}, {"3 < x", "x > 3", true}, {"0 < f(x) < 1", "(0,1)", true}, {"0 < f(x) < 1", "[0,1)", false}, {`0 \le t < 2\pi`, `[0, 2\pi)`, true}, {`[1,2] \cup [2,3]`, "[1,3]", true}, {`(1,2) \cup [2,3)`, "(1,3)", true}, {`(1,2) \cup (2,3)`, "(1,3)", false}, {`(-\infty,-1)\cup(1,\infty)`, `x < -1 \text{ or } x > 1`, true}, {`x \ne 3`, `x \neq 3`, true}, {`x \ne 3`, "x = 3", false}, {`x \in \mathbb{R}`, `\mathbb{R}`, true}, {`x \leqslant -2`, `(-\infty, -2]`, true}, {`5 \gt x`, `x \lt 5`, true}, {`(-\infty, 3] \cup \{5\}`, `(-\infty, 3]`, false}, {`[\frac{1}{2}, 1]`, "[0.5,1]", true},
		// Equations up to a factor.
		{"3x - 6y = 9", "x - 2y = 3", true}, {"x - 2y - 3 = 0", "y = (x-3)/2", true}, {"x - 2y = 3", "x + 2y = 3", false}, {"x^2 + y^2 = 25", "2x^2 + 2y^2 = 50", true}, {"x^2 + y^2 = 25", "x^2 + y^2 = 5", false}, {"y = x^2", "x = y^2", false}, {"y - 1 = 2(x - 3)", "y = 2x - 5", true},
		// Names and tuples.
		{"(a,b) = (1,2)", "(1,2)", true}, {"a = 1, b = 2", "(1,2)", true}, {"a = 1, b = 2", "(2,1)", false}, {"(x,y,z) = (1,0,-1)", "(1,0,-1)", true}, {"p=5, q=2; p=7, q=2", "(5,2), (7,2)", true}, {"p=5, q=2; p=7, q=2", "(5,2), (7,3)", false}, {"x = 1; x = 2", "1, 2", true}, {"S_{ABC} = 6", "6", true}, {"S_{ABC}", "S_{ABD}", false}, {"x_{12}", "x_{21}", false}, {`x_{12} = \frac{1}{2}`, "0.5", true},
		// Degrees and roots.
		{`\sin 90^\circ`, "1", true}, {`\cos 120^\circ`, `-\frac12`, true}, {`\tan 60^\circ`, `\sqrt{3}`, true}, {`\cos(2\cdot 30^\circ)`, "1/2", true}, {`\sin 60^\circ`, "1/2", false}, {`45^{\circ}`, "45", true}, {`\sqrt[3]{-27}`, "-3", true}, {`\sqrt[3]{27}`, "9", false}, {`\sqrt[3]{x^3}`, "x", true}, {`\sqrt[3]{16}`, `2\sqrt[3]{2}`, true}, {`\sqrt[6]{64}`, "2", true},
		// Typesetting.
		{`{3 \over 4}`, "0.75", true}, {`{a \over b}`, `\frac{a}{b}`, true}, {`\mathbf{12}`, "12", true}, {"**7/8**", "0.875", true}, {`\textbf{42}`, "42", true}, {`\overline{CD}`, "CD", true}, {`0.\overline{142857}`, "1/7", true}, {`0.2\overline{7}`, "5/18", true}, {`0.\overline{9}`, "1", true}, {`0.\overline{12}`, "0.12", false}, {`\frac{1}{\mathrm{e}}`, "1/e", true}, {`\frac{1}{\mathrm{e}}`, "e", false},
		// Bases, separators, units, currencies, signs.
		{"1101_2", "13", true}, {"ff", "255", false}, {"77_8", "63", true}, {"77_{8}", "77_9", false}, {"2 500 000", "2500000", true}, {`11,\!111`, "11111", true}, {`11,\! 111,\! 100`, "11111100", true}, {"14{, }916", "14916", true}, {"12,34,567", "1234567", false}, {"10 km", "10", true}, {"45 minutes", "45", true}, {`3\textnormal{ miles}`, "3", true}, {`3.5\textrm{ kg}`, "7/2", true}, {"28 pct", `28\%`, true}, {"28 percentage", "0.28", true}, {"5 percent", "6", false}, {"\u00a312", "12", true}, {"\u20ac1,250", "1250", true}, {"\u00be", "0.75", true}, {"1\u00bc", "5/4", true}, {"\u2153", "0.33", false}, {"\uff14\uff12", "42", true}, {"\uff14\uff12", "24", false}, {"x\u00b2", "x^2", true}, {"3\u00d74", "12", true}, {"\u221216", "-16", true},
	}
}

// still are forms that grew out of cases of others.
func still() []question {
	return []question{
		// Arithmetic with matrices.
		{`\begin{pmatrix}1&0\\2&5\end{pmatrix}+\begin{pmatrix}3&3\\0&-1\end{pmatrix}`, `\begin{pmatrix}4&3\\2&4\end{pmatrix}`, true}, {`\begin{pmatrix}1&0\\2&5\end{pmatrix}+\begin{pmatrix}3&3\\0&-1\end{pmatrix}`, `\begin{pmatrix}4&3\\2&6\end{pmatrix}`, false}, {`\begin{pmatrix}1\\2\end{pmatrix}-\begin{pmatrix}3\\4\end{pmatrix}`, `\begin{pmatrix}-2\\-2\end{pmatrix}`, true},
		{`\begin{pmatrix}0&1\\1&0\end{pmatrix}\begin{pmatrix}2&7\\5&3\end{pmatrix}`, `\begin{pmatrix}5&3\\2&7\end{pmatrix}`, true}, {`\begin{pmatrix}2&7\\5&3\end{pmatrix}\begin{pmatrix}0&1\\1&0\end{pmatrix}`, `\begin{pmatrix}5&3\\2&7\end{pmatrix}`, false}, {`3\begin{pmatrix}1&x\\0&2\end{pmatrix}`, `\begin{pmatrix}3&3x\\0&6\end{pmatrix}`, true}, {`\frac{1}{2}\begin{pmatrix}4\\6\end{pmatrix}`, `\begin{pmatrix}2\\3\end{pmatrix}`, true}, {`-\begin{pmatrix}4\\6\end{pmatrix}`, `\begin{pmatrix}-4\\-6\end{pmatrix}`, true}, {`-\begin{pmatrix}4\\6\end{pmatrix}`, `\begin{pmatrix}4\\-6\end{pmatrix}`, false},
		{`\begin{pmatrix}1&2\end{pmatrix}\begin{pmatrix}3\\4\end{pmatrix}`, `\begin{pmatrix}11\end{pmatrix}`, true}, {`\begin{pmatrix}1&2\end{pmatrix}\begin{pmatrix}3&4\end{pmatrix}`, `\begin{pmatrix}3&8\end{pmatrix}`, false}, {`\begin{pmatrix}1&2\end{pmatrix}+\begin{pmatrix}3\\4\end{pmatrix}`, `\begin{pmatrix}4&6\end{pmatrix}`, false}, {`\begin{pmatrix}1&1\\0&1\end{pmatrix}^3`, `\begin{pmatrix}1&3\\0&1\end{pmatrix}`, true}, {`\begin{pmatrix}1&1\\0&1\end{pmatrix}^{3}`, `\begin{pmatrix}1&1\\0&1\end{pmatrix}`, false}, {`\begin{pmatrix}1&1\\0&1\end{pmatrix}+1`, `\begin{pmatrix}2&2\\1&2\end{pmatrix}`, false},
		{`\begin{vmatrix}3&1\\2&4\end{vmatrix}`, "10", true}, {`\begin{vmatrix}3&1\\2&4\end{vmatrix}`, "14", false}, {`\left|\begin{array}{ccc}1&2&3\\0&4&5\\0&0&6\end{array}\right|`, "24", true}, {`\begin{vmatrix}a&b\\c&d\end{vmatrix}`, "ad-bc", true}, {`\begin{vmatrix}a&b\\c&d\end{vmatrix}`, "ad+bc", false}, {`\begin{vmatrix}1&2\\3&4\end{vmatrix}`, `\begin{pmatrix}1&2\\3&4\end{pmatrix}`, false}, {`\begin{vmatrix}1&2&3\\4&5&6\end{vmatrix}`, "0", false},
		// Distances from a number.
		{"|x| < 4", "(-4, 4)", true}, {"|x| < 4", "[-4,4]", false}, {"|x| < 4", "-4 < x < 4", true}, {"|x| \\ge 2", `(-\infty,-2]\cup[2,\infty)`, true}, {"|x| \\ge 2", `[2,\infty)`, false}, {"|x-1| \\le 3", "[-2,4]", true}, {"|x-1| \\le 3", "[-4,2]", false}, {"|x+1| > 3", `x < -4 \text{ or } x > 2`, true}, {`2 < |t| \le 5`, `[-5,-2)\cup(2,5]`, true}, {`2 < |t| \le 5`, `(2,5]`, false}, {`2 < |t| \le 5`, `(-5,-2]\cup[2,5)`, false}, {`|y| < \sqrt{3}`, `(-\sqrt{3}, \sqrt{3})`, true}, {"|x| < -1", "(1,-1)", false}, {"|x| < 4", "|y| < 4", false},
		// Roots of odd degree.
		{`\frac{2}{5\sqrt[5]{x}^3}`, `\frac{2}{5x^{3/5}}`, true}, {`\sqrt[3]{x}`, "x^{1/3}", true}, {`\sqrt[3]{x}`, "-x^{1/3}", false}, {"x^{4/3}", `\sqrt[3]{x^4}`, true}, {"|x|^{1/3}", "x^{1/3}", false}, {"x^{2/3}", "x^{3/2}", false}, {"(-8)^{1/3}", "-2", false},
		// Terms of sequences.
		{`a_n = \sum_{j=1}^{n-1} a_j a_{n-j}`, `a_n = \sum_{j=1}^{n-1} a_{n-j} a_j`, true}, {"x_{n+1} = 2x_n", "x_{n+1} = x_n \\cdot 2", true}, {"x_{n+1}", "x_{n-1}", false}, {"x_{1,2}", "x_{2,1}", false}, {"a_{n+1} = 3", "3", true},
		// Words without blanks.
		{"x=4orx=-3", "-3, 4", true}, {"(2,9)and(9,2)", "(9,2), (2,9)", true}, {"x=4orx=-3", "3, 4", false}, {"5orange", "5", false},
	}
}

// TestUnknownTerms: what a sequence is worth is not known, so that its sums equal
// themselves alone.
func TestUnknownTerms(t *testing.T) {
	for _, other := range []string{"2a_k", "a_0 + a_1", `\sum_{k=0}^{2} a_k`} {
		if v := ask(t, `\sum_{k=0}^{1} a_k`, other); v.Equal {
			t.Errorf("%s: %+v", other, v)
		}
	}
	if v := ask(t, `\sum_{k=0}^{n-2} F_k F_{n-k-2}`, "0"); v.Equal { // whose points of 0 and 1 for n are many by chance
		t.Errorf("an empty sum stands for all: %+v", v)
	}
	if v := ask(t, `\sum_{k=0}^{4} a_k`, `\sum_{k=0}^{4} a_k`); !v.Equal {
		t.Errorf("%+v", v)
	}
}

// TestTableIsWhole: the tables hold at least 400 questions, each asked both ways.
func TestTableIsWhole(t *testing.T) {
	seen := map[[2]string]bool{}
	for _, q := range table() {
		seen[[2]string{q.answer, q.truth}] = true
	}
	if len(seen) < 400 {
		t.Errorf("%d different questions, want at least 400", len(seen))
	}
}

func table() []question { return slices.Concat(exact(), algebra(), forms(), more(), still()) }

func ask(t testing.TB, a, b string) answer.Verdict {
	t.Helper()
	v, err := answer.Equal(a, b)
	if err != nil {
		t.Fatalf("%.60q and %.60q: %v", a, b, err)
	}
	return v
}

// TestAnswers asks each question both ways.
func TestAnswers(t *testing.T) {
	for _, q := range table() {
		for _, turned := range []bool{false, true} {
			a, b := q.answer, q.truth
			if turned {
				a, b = b, a
			}
			if b == "" {
				continue
			}
			v := ask(t, a, b)
			if v.Equal != q.equal || v.Method == answer.MethodUndecided {
				t.Errorf("%.60q and %.60q: %+v; want %v", a, b, v, q.equal)
			}
			if v.Equal == (v.Reason != "") {
				t.Errorf("%.60q and %.60q: %+v needs a reason exactly where it is not equal", a, b, v)
			}
		}
	}
}

// hostile are answers that must be judged at once, and never as equal to 5.
func hostile() map[string]string {
	return map[string]string{
		"tower of powers": "2**10**10", "great power": "9^{9^{9^{9}}}", "negative power": "10^{-10000000000}", "power of ten": "1e999999999",
		"factorials": "100000000!!!!", "call": "__import__('os').system('id')", "f-string": "{__import__('os')}", "sympify": "S('5')",
		"1 MB": strings.Repeat("5", 1<<20), "1 MB boxed": `\boxed{5` + strings.Repeat(" ", 1<<20) + "}", "marker": "sympy 1\n", "json": `"]],[["num","5"]`,
		"parentheses": strings.Repeat("(", 2000) + "5" + strings.Repeat(")", 2000), "braces": strings.Repeat("{", 1500), "roots": strings.Repeat(`\sqrt{`, 600) + "5" + strings.Repeat("}", 600),
		"minus": strings.Repeat("-", 4001) + "5", "powers": strings.Repeat("2^", 1500) + "2", "nested sets": strings.Repeat(`\{`, 60) + "1" + strings.Repeat(`\}`, 60), "commas": strings.Repeat("1,", 1500) + "1", "sets": strings.Repeat("{", 60) + "1,2" + strings.Repeat("}", 60),
		"NUL": "5\x00", "invalid UTF-8": "5\xff", "boxes": strings.Repeat(`\boxed{`, 8000), "empty": " ", "spaces": strings.Repeat(" ", 5000) + "6", "bars": strings.Repeat("|", 1001), "fractions": strings.Repeat(`\frac`, 500), "command": `\input{/etc/passwd}`,
		"matrices": strings.Repeat(`\begin{pmatrix}x&y\\z&w\end{pmatrix}`, 80), "power of a matrix": `\begin{pmatrix}x&y\\z&w\end{pmatrix}^{63}`, "powers of a matrix": `\begin{pmatrix}3&7\\9&2\end{pmatrix}` + strings.Repeat("^{63}", 60), "factors of a matrix": strings.Repeat("(x+1)", 600) + `\begin{pmatrix}x\end{pmatrix}`,
		"determinant": `\begin{vmatrix}` + strings.Repeat(`a&b&c&d&e&f\\`, 6) + `\end{vmatrix}`, "wide determinant": `\begin{vmatrix}` + strings.Repeat(strings.Repeat("1&", 39)+`1\\`, 40) + `\end{vmatrix}`, "subscripts": "a" + strings.Repeat("_{a+b}", 600), "nested sums": strings.Repeat(`\sum_{k=1}^{2} `, 60) + "a_k",
	}
}

func TestHostileAnswers(t *testing.T) {
	for name, answer := range hostile() {
		t.Run(name, func(t *testing.T) {
			for _, truth := range []string{"5", "x+5", `\sqrt{5}`} {
				start := time.Now()
				v := ask(t, answer, truth)
				if v.Equal || v.Method == "" || v.Reason == "" {
					t.Errorf("%+v", v)
				}
				if took := time.Since(start); took > 2*time.Second {
					t.Errorf("took %v", took)
				}
			}
		})
	}
}

func TestInvalidTruths(t *testing.T) {
	for name, truth := range map[string]string{"none": "", "endless": strings.Repeat("1", 70_000), "no text": "\xff"} {
		if v, err := answer.Equal("1", truth); !errors.Is(err, answer.ErrInvalid) || v != (answer.Verdict{}) {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
	}
}

// TestRationals draws numbers and ways to write them.
func TestRationals(t *testing.T) {
	ask := func(a, b string) bool { return ask(t, a, b).Equal }
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) *big.Rat {
			return big.NewRat(rapid.Int64Range(-5000, 5000).Draw(t, label), rapid.Int64Range(1, 300).Draw(t, label+"/"))
		}
		write := func(r *big.Rat, label string) string {
			num, den := r.Num(), r.Denom()
			k := big.NewInt(rapid.Int64Range(1, 9).Draw(t, label+" factor"))
			n, d := new(big.Int).Mul(num, k), new(big.Int).Mul(den, k)
			switch rapid.IntRange(0, 4).Draw(t, label+" form") {
			case 0:
				return fmt.Sprintf("%d/%d", n, d)
			case 1:
				return fmt.Sprintf(`$\frac{%d}{%d}$`, n, d)
			case 2:
				return fmt.Sprintf(`\boxed{x = %d \div %d}`, n, d)
			case 3:
				return fmt.Sprintf("(%d)(%d)^{-1}", n, d)
			default:
				return fmt.Sprintf(`-\dfrac{%d}{%d}`, new(big.Int).Neg(n), d)
			}
		}
		x, y := draw("x"), draw("y")
		a, b, other := write(x, "a"), write(x, "b"), write(y, "c")
		if !ask(a, a) || !ask(a, b) {
			t.Fatalf("%q and %q are one number", a, b)
		}
		if want := x.Cmp(y) == 0; ask(a, other) != want || ask(other, a) != want {
			t.Fatalf("%q and %q: want %v both ways", a, other, want)
		}
	})
}

func FuzzMath(f *testing.F) {
	for _, q := range table() {
		f.Add(q.answer, q.truth)
	}
	for _, answer := range hostile() {
		if len(answer) < 10_000 {
			f.Add(answer, "5")
		}
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		there, errThere := answer.Equal(a, b)
		back, errBack := answer.Equal(b, a)
		if errThere == nil && errBack == nil && there.Equal != back.Equal {
			t.Fatalf("%q and %q: %+v, turned %+v", a, b, there, back)
		}
		answer.NewAllowance().Close(a, b) // ends
		if v, err := answer.Equal(b, b); err == nil && !v.Equal && v.Method != answer.MethodRefused {
			t.Fatalf("%q is not itself: %+v", b, v)
		}
	})
}

// TestNestedListsAreBounded compares sets of sets, which have exponentially many
// pairs of elements.
func TestNestedListsAreBounded(t *testing.T) {
	nested := func(inner string) string { return strings.Repeat(`\{`, 28) + inner + strings.Repeat(`\}`, 28) }
	wide := func(last int) string {
		var parts []string
		for i := range 200 {
			parts = append(parts, fmt.Sprintf(`\{%d, %d\}`, i, i+1))
		}
		return strings.Join(append(parts, fmt.Sprint(last)), ", ")
	}
	for _, q := range []question{{nested("1"), nested("2"), false}, {nested("1, 2"), nested("2, 1"), true}, {wide(1), wide(2), false}} {
		start := time.Now()
		v := ask(t, q.answer, q.truth)
		if v.Equal && !q.equal || q.equal && !v.Equal && v.Method != answer.MethodUndecided {
			t.Errorf("%.20q: %+v", q.answer, v)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("%.20q: took %v", q.answer, took)
		}
	}
}

// TestClose: rounding counts for nothing, and whole numbers are themselves alone.
func TestClose(t *testing.T) {
	for _, c := range []struct {
		said, truth string
		want        bool
	}{
		{"3.14159", "3.1416", true}, {"3.14", "3.1416", false}, {"0.25", "25", true}, {"25", "0.25", true}, {"2500", "25", false}, {"1", "100", false},
		{`\sqrt{17}`, "4.123105", true}, {"4.1231", `\sqrt{17}`, true}, {"4.12", `\sqrt{17}`, false}, {"4", `\sqrt{16.0001}`, false}, {"(0.6, 2.66667]", `(\frac35, \frac83]`, true},
		{"(0.6, 2.66667)", `(\frac35, \frac83]`, false}, {"(0.6, 2.5]", `(\frac35, \frac83]`, false}, {"x", "x", true}, {"x", "y", false}, {"0", "0.00001", false}, {"yes", "0.3", false}, {"", "1", false}, {"1", "", false},
		{`\sum_{k=1}^{3} \sqrt{k}`, "4.14626", true}, {`\sum_{k=1}^{3} k`, "5", false}, {`\prod_{k=1}^{3} \frac{k}{3}`, "0.2222222", true}, {`\sum_{i=1}^{2} \sum_{j=1}^{i} \sqrt{j}`, "3.41421", true},
	} {
		if got := answer.NewAllowance().Close(c.said, c.truth); got != c.want {
			t.Errorf("%q and %q: %v, want %v", c.said, c.truth, got, c.want)
		}
	}
}

// TestCloseOfTheTable: answers that are equal by exact values are close, too, where they
// are numbers; and no pair ends with an error.
func TestCloseOfTheTable(t *testing.T) {
	for _, q := range table() {
		near := answer.NewAllowance().Close(q.answer, q.truth)
		_, numberA := answer.Number(q.answer)
		_, numberB := answer.Number(q.truth)
		zero := q.truth == "0" || q.answer == "0"
		if numberA && numberB && q.equal && !near && !zero {
			t.Errorf("%.60q and %.60q are equal and not close", q.answer, q.truth)
		}
	}
}

// TestAllowance: comparisons for one verdict cost no more together than it has.
func TestAllowance(t *testing.T) {
	const dear, truth = `\sum_{i=1}^{2000} \sum_{j=1}^{2000} \sin(ij)`, `\sqrt{3}`
	allowed := answer.NewAllowance()
	if v, err := allowed.Equal(`2\sqrt{2}`, `\sqrt{8}`); err != nil || !v.Equal {
		t.Errorf("%+v, %v", v, err)
	}
	for range 2 { // the second has what the first has left
		if v, err := allowed.Equal(dear, truth); err != nil || v.Method != answer.MethodUndecided {
			t.Errorf("%+v, %v", v, err)
		}
	}
	if v, err := allowed.Equal(`2\sqrt{2}`, `\sqrt{8}`); err != nil || v.Method != answer.MethodUndecided || allowed.Close(`\sqrt{8}`, "2.828427") {
		t.Errorf("a spent allowance: %+v, %v", v, err)
	}
	if v, err := allowed.Equal("0.5", "1/2"); err != nil || !v.Equal {
		t.Errorf("exact numbers cost nothing: %+v, %v", v, err)
	}
}
