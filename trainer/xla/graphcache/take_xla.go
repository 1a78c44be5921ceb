//go:build xla

package graphcache

import "C"

import "unsafe"

// The file of a function that C calls may define nothing in C itself.

//export temperTakeProgram
func temperTakeProgram(slot C.int, args unsafe.Pointer) unsafe.Pointer {
	return takeProgram(int(slot), args)
}
