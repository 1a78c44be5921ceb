//go:build xla

package graphcache

import "C"

import "unsafe"

// cgo: a file that exports a function may not define C functions.

//export temperTakeProgram
func temperTakeProgram(slot C.int, args unsafe.Pointer) unsafe.Pointer {
	return takeProgram(int(slot), args)
}
