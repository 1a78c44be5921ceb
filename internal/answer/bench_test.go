package answer_test

import (
	"testing"

	"temper/internal/answer"
)

// BenchmarkMath measures a verdict on each group of the tables, a question an operation.
func BenchmarkMath(b *testing.B) {
	for name, group := range map[string][]question{"exact": exact(), "values": algebra(), "forms": forms()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := range b.N {
				q := group[i%len(group)]
				if _, err := answer.Equal(q.answer, q.truth); err != nil && q.truth != "" {
					b.Fatal(err)
				}
			}
		})
	}
}
