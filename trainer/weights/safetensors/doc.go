// Package safetensors owns the safetensors file format: an 8-byte length, a
// JSON header that names each tensor, and the tensors' bytes end to end. It
// reads and writes tensor by tensor, whatever the size of the file, and knows
// no model.
//
// Invariant: a Header that this package returned describes its data exactly.
// The tensors tile it without overlap, hole or rest, each as long as its shape
// and type say, and writing it again gives the same bytes.
package safetensors
