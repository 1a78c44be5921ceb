package tokenizer

// MergesForTest returns the merges in order of rank.
func MergesForTest(t *Tokenizer) [][2]string {
	var out [][2]string
	for _, p := range t.order {
		out = append(out, [2]string{t.Decode([]int32{p.left}), t.Decode([]int32{p.right})})
	}
	return out
}
