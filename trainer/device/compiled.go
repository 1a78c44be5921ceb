package device

// Alias says that a result of a graph may take the memory of an input. Both are counted
// in the order of the compiled program.
type Alias struct{ Input, Output int }

// CompiledMemory is the memory of one device that a compiled program uses, in bytes.
type CompiledMemory struct {
	Arguments int64 `json:"arguments"` // weights, moments, and the inputs of the call
	Results   int64 `json:"results"`
	Aliased   int64 `json:"aliased"` // results that lie in the memory of arguments
	Temporary int64 `json:"temporary"`
	Code      int64 `json:"code"`
}

// Peak is what a call of the program needs at most.
func (m CompiledMemory) Peak() int64 { return m.Arguments + m.Results - m.Aliased + m.Temporary }
