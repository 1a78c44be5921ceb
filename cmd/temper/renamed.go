package main

import "temper/internal/cli"

// renamed lists the commands and flags of earlier builds that have another name.
func renamed() cli.Renamed {
	return cli.Renamed{
		"temper worker":       "temper role control",
		"temper trainer":      "temper role trainer",
		"temper trainer plan": "temper plan",
		"temper member":       "temper role host",
		"temper rollout":      "temper role rollout",
		"temper engine":       "temper role engine",
		"temper sandbox":      "temper role sandbox",
		"temper gateway":      "temper role gateway",
		"temper ui":           "temper role ui",
	}
}
