/**
 * What the library says, for someone at a shell: its calls become the commands that do the same.
 *
 * Some of these sentences are stored, as why a run is parked, so they are changed where they are shown. A sentence that is not known stays as it is.
 */

/** A word as a shell takes it. */
export const shellWord = (text: string): string =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;

/** What is said about a run or a workflow. */
export const inCommands = (says: string, run: string): string =>
  says
    .replace(
      /call run\.resolveStep\("(.*)", \{ done: true, value \}\) or \{ done: false \}/,
      (_, step: string) => `pawl run resolve ${shellWord(run)} ${shellWord(step)} with --value <json> or --not-done`,
    )
    .replace(
      /(workflow "(.*)" is paused since .*) until pawl\.workflows\.resume/,
      (_, paused: string, workflow: string) => `${paused} until pawl workflows resume ${shellWord(workflow)}`,
    )
    .replace(
      /pawl\.runs\.list\(\{ workflow: "(.*)" \}\)/,
      (_, workflow: string) => `pawl runs --workflow ${shellWord(workflow)}`,
    )
    .replace("call run.cancel({ force: true })", () => `pawl run cancel ${shellWord(run)} --force`)
    .replace("pawl.runs.list, for the workflows that share it,", "pawl runs --workflow, for each that shares it,");
