package decode

// BlockTokens is the number of tokens in a block of the cache: those whose scores fill a
// vector.
const BlockTokens = 16

// Layout is the form in which a network holds its weights.
type Layout int

// The layouts.
const (
	// Packed is a copy in tiles, which products read from the first to the last.
	Packed Layout = iota
	// InPlace uses the weights in the caller's memory. Each pass makes the tiles again, one
	// at a time, from float32 or bfloat16.
	InPlace
)

// Token is one token of a pass. Tokens of one sequence come in the order of their
// positions.
type Token struct {
	ID       int32
	Position int
	// Blocks are the blocks of the sequence's cache, by position / BlockTokens.
	Blocks []int32
	// Sample asks for the token that follows.
	Sample bool
	// Uniform is the draw in [0, 1), Scale is 1 / temperature, and Greedy above 0 selects
	// the most likely token.
	Uniform, Scale, Greedy float32
	// Logits receive the scores of the padded vocabulary, where they are not nil.
	Logits []float32
	// Next and Logprob are the answer.
	Next    int32
	Logprob float32
}
