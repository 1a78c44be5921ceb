package main

import (
	"temper/internal/cli"
)

// renamed lists the commands and flags of earlier builds that have another name.
func renamed() cli.Renamed {
	out := cli.Renamed{
		"temper worker":              "temper role control",
		"temper trainer":             "temper role trainer",
		"temper trainer plan":        "temper plan",
		"temper member":              "temper role host",
		"temper rollout":             "temper role rollout",
		"temper engine":              "temper role engine",
		"temper sandbox":             "temper role sandbox",
		"temper gateway":             "temper role gateway",
		"temper ui":                  "temper role ui",
		"temper query":               "temper export RUN --format tables",
		"temper watch":               "temper run follow RUN --screen",
		"temper report":              "temper export RUN --format html",
		"temper run rollouts":        "temper export RUN --format json",
		"temper run du":              "temper run show RUN --usage",
		"temper run repair":          "temper run verify RUN --repair",
		"temper run pin":             "temper run checkpoints RUN --pin STEP",
		"temper run unpin":           "temper run checkpoints RUN --unpin STEP",
		"temper run submit --config": "temper run submit FILE",
		"temper run restart --from":  "temper run restart RUN --step STEP",
		"temper cluster undrain":     "temper cluster drain NODE --undo",
		"temper schedule list":       "temper schedule show",
		"temper eval --version":      "temper eval RUN --policy-version N",
		"temper model gguf --model":  "temper model gguf DIR FILE",
		"temper up --stay":           "temper up --exit=false",
		"temper export --mlflow":     "temper export RUN --format mlflow --out URL",
	}
	for _, cmd := range []string{"chat", "eval", "serve", "run export", "run fork"} {
		out["temper "+cmd+" --best"] = "temper " + cmd + " --step best"
	}
	for _, cmd := range []string{"run export", "run fork"} {
		out["temper "+cmd+" --last"] = "temper " + cmd + " --step last"
	}
	for _, cmd := range []string{"chat", "eval", "serve", "run export"} {
		out["temper "+cmd+" --policy"] = "temper " + cmd + " --policy-version N"
	}
	for _, cmd := range []string{"pause", "resume", "stop", "checkpoint", "skip-stage", "repeat-stage", "amend", "restart"} {
		out["temper run "+cmd+" --by"] = "temper run " + cmd + " RUN with the variable TEMPER_OPERATOR"
	}
	return out
}
