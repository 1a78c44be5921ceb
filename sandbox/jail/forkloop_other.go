//go:build !amd64

package jail

import (
	"fmt"
	"runtime"
)

// machineCode fails: the fork loop exists only for amd64.
func machineCode() (code, error) {
	return code{}, fmt.Errorf("the sandbox runs on linux/amd64, this is %s", runtime.GOARCH)
}

const sysDup2 = -1
