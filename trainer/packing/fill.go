package packing

import "slices"

// pad gives each sequence a separate row, the longest first.
func pad(rows []*Row) []filledRow {
	out := make([]filledRow, len(rows))
	for i, r := range byLength(rows) {
		out[i] = filledRow{length: paddedLength(r.Length), members: []*Row{r}, starts: []int{0}}
	}
	return out
}

// Align is the grid on which packed sequences start. A vector of the CPU backend has 16 lanes:
// on this grid each token of a sequence is in the same lane as in a separate row, so that its
// attention has the same bits.
const Align = 16

// pack puts several sequences into each row: the longest first, each into the
// first row that has space for it (first-fit decreasing, which needs at most 11/9
// of the fewest possible rows). All rows have the length that the longest sequence
// needs, rounded up by packedLength.
//
// Attention works on whole rows: T*T scores for each of H heads, whatever the row contains.
// The backward pass keeps 4*H*T*T bytes of probabilities a row and layer (with Remat, of one
// layer only); the mask takes as much once, and the current layer a few times as much.
func pack(rows []*Row) []filledRow {
	if len(rows) == 0 {
		return nil
	}
	sorted := byLength(rows)
	length := packedLength(sorted[0].Length)
	var out []filledRow
	var used []int
	for _, r := range sorted {
		i := slices.IndexFunc(used, func(u int) bool { return u+r.Length <= length })
		if i < 0 {
			i = len(out)
			out, used = append(out, filledRow{length: length}), append(used, 0)
		}
		out[i].members, out[i].starts = append(out[i].members, r), append(out[i].starts, used[i])
		used[i] += (r.Length + Align - 1) / Align * Align
	}
	return out
}

// byLength sorts rows, the longest first.
func byLength(rows []*Row) []*Row {
	sorted := slices.Clone(rows)
	slices.SortStableFunc(sorted, func(a, b *Row) int { return b.Length - a.Length })
	return sorted
}

// paddedLength rounds up to one of 16, 32, ... 256, 288, ... 512, 576, ...:
// eight to sixteen lengths in each doubling, at least 16 apart.
func paddedLength(n int) int {
	step := 16
	for 16*step < n {
		step *= 2
	}
	return (n + step - 1) / step * step
}

// packedLength rounds up to a power of two, at least 64. Shorter sequences fill
// the rest of a row, so a few lengths are enough, and with them a few graphs.
func packedLength(n int) int {
	length := 64
	for length < n {
		length *= 2
	}
	return length
}
