package jail

import "time"

// WithMode returns cfg restricted to one mode, to test the weaker ones anywhere.
func (c Config) WithMode(mode Mode) Config {
	c.modes = []Mode{mode}
	return c
}

// WithSlack returns cfg with another time that a starved program may have beyond
// its limit.
func (c Config) WithSlack(slack time.Duration) Config {
	c.slack = slack
	return c
}

// NumPreambles returns how many preambles are compiled.
func (j *Jail) NumPreambles() int {
	j.preambles.mu.Lock()
	defer j.preambles.mu.Unlock()
	n := 0
	for _, p := range j.preambles.known {
		if p.code != nil {
			n++
		}
	}
	return n
}
