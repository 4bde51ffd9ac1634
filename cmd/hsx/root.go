package main

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "hsx",
		Short: "Hidden-state dumps to datasets that can be trusted",
		Long: `hsx stands between the dump of a target model's hidden states and the training of
a speculative draft (EAGLE-3 and its kin): it stores dumps as durable Arrow
datasets, keeps which layer is which, and makes silent mistakes loud.

Exit codes: 0 done; 1 could not do the work; 2 the command line is wrong; 3 the work
was done and the data (with bench --gate: the verdict) is not good; 130 interrupted.`,
		Example: `  hsx demo
  hsx ingest --out ds --layers 2,30,58 --target config.json dumps/
  hsx inspect ds
  hsx verify ds`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddGroup(&cobra.Group{ID: "data", Title: "Data:"}, &cobra.Group{ID: "serve", Title: "Serving:"}, &cobra.Group{ID: "other", Title: "Other:"})
	root.AddCommand(newIngestCommand(), newPlanCommand(), newInspectCommand(), newVerifyCommand(), newValidateCommand(), newAuditCommand(),
		newFingerprintCommand(), newCaptureCommand(), newServeCommand(), newMergeCommand(), newRecompressCommand(), newGCCommand(), newExportCommand(), newBenchCommand(),
		newDemoCommand(), newVersionCommand())
	root.SetHelpCommandGroupID("other")
	root.SetCompletionCommandGroupID("other")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &usageError{err} })
	usageArgs(root)
	return root
}

// usageArgs makes wrong arguments of a command, and of those below it, a usageError.
// So is the empty text for a flag: it comes from a variable of the shell that is not
// set, and would be taken for a flag that is not given.
func usageArgs(c *cobra.Command) {
	check := c.Args
	c.Args = func(cmd *cobra.Command, args []string) error {
		var err error
		cmd.Flags().Visit(func(f *pflag.Flag) {
			if f.Value.Type() == "string" && f.Value.String() == "" {
				err = usagef("--%s: the text is empty, want a value or no --%[1]s", f.Name)
			}
		})
		if err != nil {
			return err
		}
		if err := check(cmd, args); err != nil {
			return &usageError{err}
		}
		return nil
	}
	for _, sub := range c.Commands() {
		usageArgs(sub)
	}
}

// version is the module's version as the build recorded it, with the revision where
// there is one.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "hsx (unknown build)"
	}
	v := info.Main.Version
	if v == "" || v == "(devel)" {
		v = "devel"
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v += "-" + s.Value[:min(12, len(s.Value))]
			}
		}
	}
	return "hsx " + strings.TrimPrefix(v, "v")
}

func newVersionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version and the dataset format it writes",
		Example: "  hsx version",
		GroupID: "other",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			info, _ := debug.ReadBuildInfo()
			v := versionInfo{Version: version(), FormatVersion: formatVersion}
			if info != nil {
				v.Go = info.GoVersion
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), v)
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s (dataset format %d, %s)\n", v.Version, v.FormatVersion, v.Go)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

// versionInfo is the JSON document of hsx version.
type versionInfo struct {
	Version       string `json:"version"`
	FormatVersion int    `json:"format_version"`
	Go            string `json:"go"`
}
