package evaluate

import (
	"testing"

	"temper/internal/rl"
)

// TestLetter: the forms in which models and public graders give one choice, and texts that
// give none or several.
func TestLetter(t *testing.T) {
	for _, said := range []string{
		`\boxed{B}`, `\boxed{(B)}`, `\boxed{\text{B}}`, `\boxed{\text{(B)}}`, `\boxed{\textbf{(B)}\ 5}`, `\boxed{\textbf{(B) }5}`, `\boxed{\mathbf{B}}`, `\boxed{b}`, `\boxed{ B. }`,
		`\boxed{B. Paris}`, `\boxed{B) 42 J}`, `\boxed{B: x and y}`, `\boxed{\text{B. } 5}`, `\boxed{$B$}`, `\boxed{[B]}`, `\boxed{"B"}`, `\boxed{\text{B}}.`, `\boxed{B} because A is not right`,
		`\boxed{\mathrm{\textbf{B}}}`, `\boxed{B) 1, 2 and 3}`, `\boxed{B. iron, nickel}`,
		"The answer is B", "The answer is B.", "The answer is (B).", "The answer is (B) because A is not right.", "The answer is B because it is", "the answer is b", "Answer: B", "**Answer: B**", "Answer: **B**",
		"The correct answer is B: 42.", "The answer is B, since it rains.", "The answer is B - Paris", "Answer: B)", "Answer: $B$", "answer is: (b)", "Answer: B\nThat is A no more", "The answer is B. I think.", "Answer: B (Paris)", "#### B", "Answer: B is right.", "The answer is b by symmetry", "The answer is B and nothing else.",
	} {
		if v, err := Choice.judge(rl.Problem{Answer: "B"}, said); err != nil || !v.Correct {
			t.Errorf("%s: %+v, %v", said, v, err)
		}
	}
	for _, said := range []string{
		`\boxed{A and C}`, `\boxed{A, B}`, `\boxed{A or C}`, `\boxed{A,C}`, `\boxed{A/C}`, `\boxed{(A) and (C)}`, `\boxed{\text{A and C}}`, `\boxed{A. and B.}`, `\boxed{A. x and B. y}`, `\boxed{A C}`, `\boxed{AC}`,
		`\boxed{A\text{ and }C}`, `\boxed{}`, `\boxed{4}`, `\boxed{A_1}`, `\boxed{a+b}`, `\boxed{A=2}`,
		"the answer is a matter of taste; I choose B", "The answer is I think unknown", "The answer is A and C.", "The answer is A, B", "The answer is A or, if you like, B", "The answer is (A), (B).", "The answer is neither",
		"the answer is a, b", "the answer is C or maybe D", `\boxed{A-B}`, `\boxed{B C}`, "Answer: e.g. this one",
	} {
		v, err := Choice.judge(rl.Problem{Answer: "A"}, said)
		if err != nil || v.Correct || v.Extracted != "" {
			t.Errorf("%s: %+v, %v", said, v, err)
		}
	}
}
