package jail

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Where forkLoop, arenaAlloc and rebuild begin, which are code for the zygote and
// never called in this process.
func forkLoopAddress() unsafe.Pointer
func arenaAllocAddress() unsafe.Pointer
func rebuildAddress() unsafe.Pointer

// codeEnd follows the last instruction of a function for the zygote.
const codeEnd = 0x6c6f6f70656e6421

// codeLimit is more than such a function will ever need.
const codeLimit = 4096

// machineCode returns the functions for the zygote, which run at any address.
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

// instructions returns in hexadecimal the code from start to its end mark.
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
