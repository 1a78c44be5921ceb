package jail

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Addresses of forkLoop, arenaAlloc and rebuild. They are code for the zygote and
// never run in this process.
func forkLoopAddress() unsafe.Pointer
func arenaAllocAddress() unsafe.Pointer
func rebuildAddress() unsafe.Pointer

// codeEnd marks the end of a function for the zygote.
const codeEnd = 0x6c6f6f70656e6421

// codeLimit bounds the search for codeEnd, in bytes.
const codeLimit = 4096

// machineCode returns the position-independent functions for the zygote.
func machineCode() (code, error) {
	loop, err := instructions(forkLoopAddress())
	if err != nil {
		return code{}, err
	}
	arena, err := instructions(arenaAllocAddress())
	if err != nil {
		return code{}, err
	}
	rebuild, err := instructions(rebuildAddress())
	return code{loop: loop, arena: arena, rebuild: rebuild}, err
}

// instructions returns the code from start to its end mark in hexadecimal.
func instructions(start unsafe.Pointer) (string, error) {
	text := unsafe.Slice((*byte)(start), codeLimit)
	end := bytes.Index(text, binary.LittleEndian.AppendUint64(nil, codeEnd))
	if end < 0 {
		return "", errors.New("machine code without an end mark")
	}
	return hex.EncodeToString(text[:end]), nil
}

// sysDup2 does not exist on newer architectures.
const sysDup2 = unix.SYS_DUP2
