/**
 * `pawl completion`: a script for the shell, made from the tree of commands.
 *
 * For every path of words, as "run" or "run show", it knows which words and options may follow. Names of what is stored are not completed: a key press must not open
 * a database.
 */

import { Argument, type Command } from "commander";
import { declare, defaultOf, type Place } from "../program.ts";

const SHELLS = ["bash", "zsh", "fish"] as const;

export function completionCommand(place: Place): void {
  const command = declare(place, {
    usage: "completion",
    summary: "print a completion script",
    help: `bash: pawl completion bash > ~/.local/share/bash-completion/completions/pawl
zsh:  pawl completion zsh > "\${fpath[1]}/_pawl"
fish: pawl completion fish > ~/.config/fish/completions/pawl.fish`,
    run: async (session, [shell]) => {
      const script = { bash, zsh, fish }[shell as (typeof SHELLS)[number]];
      session.print([script(nodesOf(place.under))]);
    },
  });
  command.addArgument(new Argument("<shell>", "the shell").choices(SHELLS));
}

/** One place in the tree: the words that lead there, and what may follow. */
interface Node {
  readonly path: string;
  readonly words: readonly { readonly word: string; readonly says: string }[];
  readonly options: readonly { readonly flag: string; readonly says: string; readonly choices: readonly string[] }[];
}

function nodesOf(root: Command, path = ""): readonly Node[] {
  const help = root.createHelp();
  const children = help.visibleCommands(root).filter((one) => one.name() !== "help");
  const globals = path === "" ? [] : help.visibleGlobalOptions(root);
  const alone = defaultOf(root);
  const own = [...help.visibleOptions(root), ...(alone === undefined ? [] : help.visibleOptions(alone))];
  const choices = root.registeredArguments.flatMap(({ argChoices }) => argChoices ?? []);
  return [
    {
      path,
      words: [
        ...children.map((one) => ({ word: one.name(), says: one.description() })),
        ...choices.map((word) => ({ word, says: "" })),
      ],
      options: [...new Map([...own, ...globals].map((one) => [one.long, one])).values()].flatMap(
        ({ long, description, argChoices }) =>
          long == null ? [] : [{ flag: long, says: description, choices: argChoices ?? [] }],
      ),
    },
    ...children.flatMap((one) => nodesOf(one, `${path} ${one.name()}`.trim())),
  ];
}

const quoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

/** Finds the path: the words so far that lead further into the tree. */
function bash(nodes: readonly Node[]): string {
  const paths = nodes.filter(({ path }) => path !== "").map(({ path }) => `"${path}"`);
  const cases = nodes.flatMap(({ path, words, options }) => [
    `    "${path}")`,
    `      words="${words.map(({ word }) => word).join(" ")}"`,
    `      options="${options.map(({ flag }) => flag).join(" ")}" ;;`,
  ]);
  const values = choicesOf(nodes).map(([flag, choices]) => `    ${flag}) values="${choices.join(" ")}" ;;`);
  return `# Completion of pawl for bash.
_pawl() {
  local current="\${COMP_WORDS[COMP_CWORD]}" before="\${COMP_WORDS[COMP_CWORD-1]}" path="" word words="" options="" values=""
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "\${path:+$path }$word" in
      ${paths.join("|")}) path="\${path:+$path }$word" ;;
    esac
  done
  case "$before" in
${values.join("\n")}
    --store|--out|--import) COMPREPLY=($(compgen -f -- "$current")); return ;;
  esac
  if [ -n "$values" ]; then COMPREPLY=($(compgen -W "$values" -- "$current")); return; fi
  case "$path" in
${cases.join("\n")}
  esac
  case "$current" in
    -*) COMPREPLY=($(compgen -W "$options" -- "$current")) ;;
    *) COMPREPLY=($(compgen -W "$words" -- "$current")) ;;
  esac
}
complete -o default -F _pawl pawl`;
}

function zsh(nodes: readonly Node[]): string {
  const paths = nodes.filter(({ path }) => path !== "").map(({ path }) => `"${path}"`);
  const described = (name: string, says: string): string => quoted(`${name.replaceAll(":", "\\:")}:${says}`);
  const cases = nodes.flatMap(({ path, words, options }) => [
    `    "${path}")`,
    `      words_=(${words.map(({ word, says }) => described(word, says)).join(" ")})`,
    `      options_=(${options.map(({ flag, says }) => described(flag, says)).join(" ")}) ;;`,
  ]);
  const values = choicesOf(nodes).map(([flag, choices]) => `    ${flag}) compadd -- ${choices.join(" ")}; return ;;`);
  return `#compdef pawl
# Completion of pawl for zsh.
_pawl() {
  local path_="" word
  local -a words_ options_
  for word in "\${words[@]:1:$((CURRENT-2))}"; do
    case "\${path_:+$path_ }$word" in
      ${paths.join("|")}) path_="\${path_:+$path_ }$word" ;;
    esac
  done
  case "\${words[CURRENT-1]}" in
${values.join("\n")}
    --store|--out|--import) _files; return ;;
  esac
  case "$path_" in
${cases.join("\n")}
  esac
  case "\${words[CURRENT]}" in
    -*) _describe 'option' options_ ;;
    *) if (( \${#words_} )); then _describe 'command' words_; else _files; fi ;;
  esac
}
if [ "\${funcstack[1]}" = "_pawl" ]; then _pawl "$@"; else compdef _pawl pawl; fi`;
}

function fish(nodes: readonly Node[]): string {
  const paths = nodes.filter(({ path }) => path !== "").map(({ path }) => quoted(path));
  const lines = nodes.flatMap(({ path, words, options }) => {
    const here = `-n ${quoted(`test (__pawl_path) = "${path}"`)}`;
    return [
      ...words.map(({ word, says }) => `complete -c pawl -f ${here} -a ${quoted(word)} -d ${quoted(says)}`),
      ...options.map(({ flag, says, choices }) => {
        const values = choices.length === 0 ? "" : ` -x -a ${quoted(choices.join(" "))}`;
        return `complete -c pawl ${here} -l ${flag.slice(2)}${values} -d ${quoted(says)}`;
      }),
    ];
  });
  return `# Completion of pawl for fish.
function __pawl_path
  set -l path ""
  for word in (commandline -opc)[2..-1]
    set -l longer (string trim -- "$path $word")
    if contains -- $longer ${paths.join(" ")}
      set path $longer
    end
  end
  echo -- $path
end
${lines.join("\n")}`;
}

/** The values of options that have a fixed list of them, whatever the command. */
function choicesOf(nodes: readonly Node[]): readonly (readonly [flag: string, choices: readonly string[]])[] {
  const found = new Map<string, Set<string>>();
  for (const { options } of nodes)
    for (const { flag, choices } of options)
      if (choices.length > 0) found.set(flag, new Set([...(found.get(flag) ?? []), ...choices]));
  return [...found].map(([flag, choices]) => [flag, [...choices]]);
}
