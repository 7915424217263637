// Help, shell completion and the man page, from the table.
import { VERSION } from '../common/version.ts';
import { type Command, EXIT_STATUS, OF_SERVICE, type Option } from './table.ts';

const left = ({ name, short, value }: Option): string =>
  `${short === undefined ? '' : `-${short}, `}--${name}${value === undefined ? '' : ` ${value}`}`;

const called = (name: string, operands: string): string => (operands === '' ? name : `${name} ${operands}`);

/** @param rows their left halves are padded to one width. */
function columns(rows: readonly (readonly [string, string])[]): string[] {
  const width = Math.max(...rows.map(([one]) => one.length));
  return rows.map(([one, text]) => `  ${one.padEnd(width)}  ${text}`);
}

const status = (): string[] => ['exit status:', ...columns(EXIT_STATUS.map(([code, text]) => [String(code), text]))];

/** `countersign --help`. */
export function usage(all: readonly Command[]): string {
  const commands = all.map(({ name, operands, text }) => [called(name, operands), text] as const);
  return [
    `countersign ${VERSION}: checks that a confidential GPU signed exactly this request and this answer`,
    '',
    'countersign [verify] FILE [options]',
    '',
    ...columns(commands),
    '',
    'of the service, not of the npm package:',
    ...columns(OF_SERVICE.map(({ name, text }) => [name, text])),
    '',
    'FILE may be - for standard input. countersign COMMAND --help lists its options; --version prints the version.',
    '',
    'examples:',
    ...all.flatMap(({ examples }) => examples.slice(0, 2)).map((example) => `  ${example}`),
    '',
    ...status(),
  ].join('\n');
}

/** `countersign COMMAND --help`. */
export function usageOf({ name, operands, text, options, examples }: Command): string {
  return [
    `countersign ${called(name, operands)}${options.length > 0 ? ' [options]' : ''}`,
    `  ${text}`,
    '',
    ...(options.length > 0 ? [...columns(options.map((option) => [left(option), option.text])), ''] : []),
    'examples:',
    ...examples.map((example) => `  ${example}`),
    '',
    ...status(),
  ].join('\n');
}

export const SHELLS = ['bash', 'zsh', 'fish'] as const;
export type Shell = (typeof SHELLS)[number];

const names = (all: readonly Command[]): string[] => [...all, ...OF_SERVICE].map(({ name }) => name);

export function completion(shell: Shell, all: readonly Command[]): string {
  return { bash, zsh, fish }[shell](all);
}

function bash(all: readonly Command[]): string {
  const cases = all.flatMap(({ name, options }) =>
    options.length === 0 ? [] : [`    ${name}) words='${options.map((option) => `--${option.name}`).join(' ')}' ;;`],
  );
  const values = optionsOf(all).flatMap(({ name, among }) =>
    among === undefined ? [] : [`    --${name}) COMPREPLY=($(compgen -W '${among.join(' ')}' -- "$word")); return ;;`],
  );
  return `_countersign() {
  local word=\${COMP_WORDS[COMP_CWORD]} before=\${COMP_WORDS[COMP_CWORD - 1]} words=
  if [ "$COMP_CWORD" = 1 ]; then
    COMPREPLY=($(compgen -W '${names(all).join(' ')}' -- "$word") $(compgen -f -- "$word"))
    return
  fi
  case $before in
${values.join('\n')}
  esac
  case \${COMP_WORDS[1]} in
${cases.join('\n')}
  esac
  case $word in
    -*) COMPREPLY=($(compgen -W "$words" -- "$word")) ;;
    *) COMPREPLY=($(compgen -f -- "$word")) ;;
  esac
}
complete -o filenames -F _countersign countersign`;
}

function optionsOf(all: readonly Command[]): Option[] {
  return [...new Map(all.flatMap(({ options }) => options).map((option) => [option.name, option])).values()];
}

/** For zsh's and fish's single quotes. */
const quoted = (text: string): string => text.replaceAll("'", "'\\''");

function zsh(all: readonly Command[]): string {
  const commands = [...all, ...OF_SERVICE].map(
    ({ name, text }) => `    '${name}:${quoted(text).replaceAll(':', '\\:')}'`,
  );
  const cases = all.map(({ name, options }) => {
    const specs = options.map((option) => {
      const text = quoted(option.text).replaceAll(/[[\]:]/g, '\\$&');
      const { value, among } = option;
      const follows = value === undefined ? '' : `:${value}:${among === undefined ? '_files' : `(${among.join(' ')})`}`;
      return ` \\\n        '${option.multiple ? '*' : ''}--${option.name}[${text}]${follows}'`;
    });
    return `      ${name}) _arguments${specs.join('')} '*:file:_files' ;;`;
  });
  return `#compdef countersign
_countersign() {
  local -a commands
  commands=(
${commands.join('\n')}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    _files
  else
    local command=$words[2]
    shift words
    (( CURRENT-- ))
    case $command in
${cases.join('\n')}
    esac
  fi
}
compdef _countersign countersign`;
}

function fish(all: readonly Command[]): string {
  const one = '__fish_use_subcommand';
  const lines = [...all, ...OF_SERVICE].map(
    ({ name, text }) => `complete -c countersign -n ${one} -a ${name} -d '${quoted(text)}'`,
  );
  for (const { name, options } of all)
    for (const { name: option, value, among, text } of options) {
      const follows = value === undefined ? '' : among === undefined ? ' -r -F' : ` -x -a '${among.join(' ')}'`;
      lines.push(
        `complete -c countersign -n '__fish_seen_subcommand_from ${name}' -l ${option}${follows} -d '${quoted(text)}'`,
      );
    }
  return lines.join('\n');
}

/** For roff: a line that begins with a control character is text, and a hyphen is a hyphen. */
const roff = (text: string): string =>
  text
    .replaceAll('\\', '\\e')
    .replaceAll('-', '\\-')
    .replace(/^([.'])/, '\\&$1');

/** `countersign(1)`, in the man macros. */
export function manPage(all: readonly Command[]): string {
  const options = ({ options: own }: Command) =>
    own.flatMap((option) => [
      '.TP',
      `.B \\-\\-${roff(option.name)}${option.value === undefined ? '' : `\\fR \\fI${roff(option.value)}`}`,
      roff(option.text),
    ]);
  return [
    `.TH COUNTERSIGN 1 "" "countersign ${VERSION}"`,
    '.SH NAME',
    'countersign \\- check attested answers of confidential GPUs',
    '.SH SYNOPSIS',
    '.B countersign\n[\\fIverify\\fR] \\fIFILE\\fR [\\fIoptions\\fR]',
    '.SH COMMANDS',
    ...all.flatMap((command) => [
      `.SS ${roff(called(command.name, command.operands))}`,
      roff(command.text),
      ...options(command),
    ]),
    '.SH EXIT STATUS',
    ...EXIT_STATUS.flatMap(([code, text]) => ['.TP', `.B ${code}`, roff(text)]),
    '.SH ENVIRONMENT',
    '.TP\n.B NO_COLOR\nNo colours, where it is not empty.',
    '.TP\n.B OPENAI_API_KEY\nThe API key of \\fBreplay\\fR, where no file is named.',
    '.SH EXAMPLES',
    '.nf',
    ...all.flatMap(({ examples }) => examples).map(roff),
    '.fi',
    '',
  ].join('\n');
}
