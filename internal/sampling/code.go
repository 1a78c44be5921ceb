package sampling

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"temper/internal/config"
	"temper/internal/rollout"
	"temper/internal/run"
	"temper/internal/tool"
	"temper/sandbox"
)

// toolLimits bound one call of a tool.
func toolLimits(c config.Rollout) sandbox.Limits {
	return sandbox.Limits{Wall: c.ToolTimeout, Memory: int64(c.ToolMemory)}
}

// rewardLimits bound one call of a reward function.
func rewardLimits(c config.Reward) sandbox.Limits {
	return sandbox.Limits{Wall: c.Limit(), CPU: c.Limit()}
}

// ownReward is the reward function of a run; nil for none.
func ownReward(code run.Code, c config.Reward) *rollout.Reward {
	if code.Reward == nil {
		return nil
	}
	return &rollout.Reward{File: *code.Reward, Limits: rewardLimits(c), Exclude: c.OnError == config.RewardExclude}
}

// probeCode imports the files of a run in the sandbox before anything is sampled, so
// that a file that cannot be imported ends the run and does not teach the policy that
// its tools fail. The error names all that are at fault.
func (r *Service) probeCode(ctx context.Context, loaded *run.Loaded) error {
	var bad []error
	ask := func(p tool.Probe) {
		p.Run = loaded.Ref.RunID
		bad = append(bad, p.Ask(ctx, watchedExecutor{r.Executor, &r.trouble, new(atomic.Int64)}))
	}
	for _, f := range loaded.Code.Tools {
		p := tool.Probe{Key: "rollout.tools", Source: f.Source, Limits: toolLimits(loaded.Config.Rollout)}
		for _, fn := range f.Functions {
			p.Names = append(p.Names, fn.Name)
		}
		ask(p)
	}
	if f := loaded.Code.Reward; f != nil {
		ask(tool.Probe{Key: "reward.path", Source: f.Source, Names: []string{f.Function}, Limits: rewardLimits(loaded.Config.Reward)})
	}
	if err := errors.Join(bad...); err != nil {
		return fmt.Errorf("code of run %s: %w", loaded.Ref.RunID, err)
	}
	return nil
}
