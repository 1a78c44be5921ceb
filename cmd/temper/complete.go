package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/config"
	"temper/internal/history"
	"temper/workers"
)

// completeTimeout bounds the wait of a shell for a store.
const completeTimeout = 2 * time.Second

// completeRuns lets a shell complete the run ids of every command below cmd that
// takes some.
func completeRuns(cmd *cobra.Command) {
	words := strings.Fields(strings.NewReplacer("[", " ", "]", " ", "...", " ...").Replace(cmd.Use))
	if len(words) > 1 && words[1] == "RUN" {
		most := 1
		if slices.Contains(words, "...") {
			most = -1
		}
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			if len(args) == most {
				return nil, cobra.ShellCompDirectiveDefault
			}
			return runIDs(cmd, args, prefix), cobra.ShellCompDirectiveNoFileComp
		}
	}
	for _, sub := range cmd.Commands() {
		completeRuns(sub)
	}
}

// runIDs are the runs of the store that the flags of the command name. A store that
// does not answer completes nothing: a shell has no place for its error.
func runIDs(cmd *cobra.Command, given []string, prefix string) []string {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
	defer cancel()
	p := config.DefaultProcess()
	for name, value := range map[string]*string{"home": &p.Home, "store": &p.Store} {
		if f := cmd.Flags().Lookup(name); f != nil {
			*value = f.Value.String()
		}
	}
	store, err := workers.OpenStore(ctx, &p)
	if err != nil {
		return nil
	}
	ids, err := history.RunIDs(ctx, store)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(ids, func(id string) bool { return !strings.HasPrefix(id, prefix) || slices.Contains(given, id) })
}
