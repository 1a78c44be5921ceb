package series

// Known is a series of a step's record, and whether the step has it: a step without a correct
// trajectory has no calls of correct ones, and its share of failed ones is recorded as 0.
func Known(metrics map[string]float64, name string) (value float64, known bool) {
	value, known = metrics[name]
	if (name == CorrectErrors || name == KeptErrors) && metrics[Reward] == 0 {
		return 0, false
	}
	return value, known
}

// Known returns the series of a step's record that the step has; see the function Known. Callers
// must not change the result.
func (v Values) Known() Values {
	if v[Reward] != 0 {
		return v
	}
	out := make(Values, len(v))
	for name := range v {
		if x, known := Known(v, name); known {
			out[name] = x
		}
	}
	return out
}
