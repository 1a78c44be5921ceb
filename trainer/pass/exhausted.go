package pass

import (
	"fmt"
	"strings"
)

// exhaustion is what PJRT's plugins say, of a compilation and of a call, where a device has
// no more memory.
const exhaustion = "RESOURCE_EXHAUSTED"

// exhausted gives the error of a device without memory the kind of a step that is too
// large: another attempt would fail as this one did. Other errors stay what they are.
func exhausted(err error) error {
	if err == nil || !strings.Contains(strings.ToUpper(err.Error()), exhaustion) && !strings.Contains(err.Error(), "Out of memory allocating") {
		return err
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return fmt.Errorf("%w of the device: lower rl.microbatch_tokens, or set model.remat or rl.loss.max_logits, or take more devices for the model axis; temper trainer plan says what fits (%s)",
		ErrTooLarge, line)
}
