package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// TestEmptyFlag gives the empty text, which a variable of the shell has that is not set,
// to every flag that takes one: what it asked for must not be left out without a word.
func TestEmptyFlag(t *testing.T) {
	t.Parallel()
	var all func(c *cobra.Command)
	all = func(c *cobra.Command) {
		path := strings.Fields(c.CommandPath())[1:]
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() != "string" {
				return
			}
			code, out, talk := hsx(append(path, "--"+f.Name+"=")...)
			want := "hsx: --" + f.Name + ": the text is empty, want a value or no --" + f.Name + "\n"
			if code != exitUsage || out != "" || !strings.HasPrefix(talk, want) {
				t.Errorf("%s --%s '': exit %d, %q, want %d, %q", c.CommandPath(), f.Name, code, out+talk, exitUsage, want)
			}
		})
		for _, sub := range c.Commands() {
			all(sub)
		}
	}
	all(newRoot())
}
