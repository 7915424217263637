// What each TypeScript file of the repository imports, exports and holds in long functions, by TypeScript's own parser.
import { join, relative } from 'node:path';
import { dirname } from 'node:path/posix';
import type { ExportDeclaration, ImportDeclaration, Node, SourceFile } from 'typescript/unstable/ast';
import * as is from 'typescript/unstable/ast/is';
import { API } from 'typescript/unstable/sync';

const MAX_FUNCTION_LINES = 100;

/** A name that a file exports. `*`: all of them. */
export interface Name {
  readonly file: string;
  readonly name: string;
}

export interface Source {
  readonly lines: number;
  /** Files, by each import but those at run time: those of types included. */
  readonly imports: string[];
  /** What it takes from other files, at run time too. */
  readonly uses: Name[];
  /** By name; what another file exports and this one hands on, or null. */
  readonly exports: Map<string, Name | null>;
  /** Those over 100 lines. */
  readonly longFunctions: string[];
}

/** Of every file that the two tsconfig.json of `root` name, by its path in `root`. */
export function readSources(root: string): Map<string, Source> {
  const api = new API({ cwd: root });
  try {
    const openProjects = ['tsconfig.json', 'tsconfig.web.json'].map((file) => join(root, file));
    const found = new Map<string, Source>();
    for (const { program } of api.updateSnapshot({ openProjects }).getProjects())
      for (const name of program.getSourceFileNames()) {
        const file = relative(root, name);
        const source = /^\.\.|node_modules|\.d\.ts$/.test(file) || found.has(file) ? null : program.getSourceFile(name);
        if (source) found.set(file, readSource(file, source));
      }
    return found;
  } finally {
    api.close();
  }
}

function readSource(file: string, source: SourceFile): Source {
  const lines = source.text.split('\n').length - 1;
  const read: Source = { lines, imports: [], uses: [], exports: new Map(), longFunctions: [] };
  /** What it imported, by its name here. */
  const imported = new Map<string, Name>();
  const fileOf = (specifier: Node | undefined): string | null =>
    specifier !== undefined && is.isStringLiteral(specifier) && specifier.text.startsWith('.')
      ? join(dirname(file), specifier.text)
      : null;
  const use = (from: string, name: string): Name => {
    const used = { file: from, name };
    read.uses.push(used);
    return used;
  };
  const readImport = ({ moduleSpecifier, importClause }: ImportDeclaration): void => {
    const from = fileOf(moduleSpecifier);
    const names = importClause?.namedBindings;
    if (from === null) return;
    read.imports.push(from);
    if (names === undefined || is.isNamespaceImport(names)) use(from, '*');
    else
      for (const { name, propertyName = name } of names.elements) imported.set(name.text, use(from, propertyName.text));
  };
  const readExport = ({ moduleSpecifier, exportClause }: ExportDeclaration): void => {
    const from = fileOf(moduleSpecifier);
    if (from !== null) read.imports.push(from);
    if (exportClause === undefined || is.isNamespaceExport(exportClause)) {
      if (from !== null) use(from, '*');
      return;
    }
    for (const { name, propertyName = name } of exportClause.elements)
      read.exports.set(
        name.text,
        from === null ? (imported.get(propertyName.text) ?? null) : { file: from, name: propertyName.text },
      );
  };
  const readLazy = (call: Node, from: string): void => {
    const declared = call.parent.parent;
    const pattern =
      is.isVariableDeclaration(declared) && is.isObjectBindingPattern(declared.name) ? declared.name : null;
    if (pattern === null) use(from, '*');
    else for (const { name, propertyName = name } of pattern.elements) use(from, propertyName?.getText(source) ?? '*');
  };
  const readFunction = (node: Node): void => {
    const length = source.text.slice(node.getStart(source), node.end).split('\n').length;
    const named = 'name' in node ? (node.name as Node | undefined) : undefined;
    if (length > MAX_FUNCTION_LINES) read.longFunctions.push(`${length} ${file} ${named?.getText(source) ?? ''}`);
  };
  const visit = (node: Node): void => {
    if (is.isImportDeclaration(node)) readImport(node);
    else if (is.isExportDeclaration(node)) readExport(node);
    else if (is.isImportTypeNode(node) && is.isLiteralTypeNode(node.argument)) {
      const from = fileOf(node.argument.literal);
      if (from !== null) read.imports.push(use(from, node.qualifier?.getText(source) ?? '*').file);
    } else if (is.isCallExpression(node) && node.expression.getText(source) === 'import') {
      const from = fileOf(node.arguments[0]);
      if (from !== null) readLazy(node, from);
    }
    if (is.isFunctionLikeDeclaration(node) && 'body' in node && node.body !== undefined) readFunction(node);
    node.forEachChild(visit);
  };
  for (const statement of source.statements)
    for (const name of exportedNames(statement, source)) read.exports.set(name, null);
  source.forEachChild(visit);
  return read;
}

/** The names that a statement declares and exports. */
function exportedNames(statement: Node, source: SourceFile): string[] {
  if (!/^export\b/.test(statement.getText(source)) || is.isExportDeclaration(statement)) return [];
  if (is.isVariableStatement(statement))
    return statement.declarationList.declarations.map(({ name }) => name.getText(source));
  const name = 'name' in statement ? (statement.name as Node | undefined) : undefined;
  return [name?.getText(source) ?? 'default'];
}

/** Exports of `files` that no other file uses but those that `isTest` names; `entries` are used by everybody. */
export function usedByTestsAlone(
  sources: ReadonlyMap<string, Source>,
  files: readonly string[],
  entries: readonly string[],
  isTest: (file: string) => boolean,
): string[] {
  const used = new Set<string>();
  const mark = ({ file, name }: Name): void => {
    const exports = sources.get(file)?.exports;
    const names = name === '*' ? [...(exports?.keys() ?? [])] : [name];
    for (const one of names.filter((one) => !used.has(`${file} ${one}`))) {
      used.add(`${file} ${one}`);
      const handedOn = exports?.get(one);
      if (handedOn) mark(handedOn);
    }
  };
  for (const file of entries) mark({ file, name: '*' });
  for (const [file, { uses }] of sources) if (!isTest(file)) uses.forEach(mark);
  return files
    .flatMap((file) => [...(sources.get(file)?.exports.keys() ?? [])].map((name) => `${file} ${name}`))
    .filter((one) => !used.has(one));
}
