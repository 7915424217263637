// The OpenAPI document as HTML: every route, parameter, example, error and schema, each at an address of its own.
import { html, raw } from 'hono/html';

/** A result of `html`, or text. */
type Html = ReturnType<typeof html> | string;

// The parts of the document that the page shows.

interface Schema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly description?: string;
  readonly const?: unknown;
  readonly enum?: readonly unknown[];
  readonly anyOf?: readonly Schema[];
  readonly items?: Schema;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: Schema | boolean;
  readonly required?: readonly string[];
  readonly [constraint: string]: unknown;
}
interface Example {
  readonly summary: string;
  readonly value: unknown;
}
type Examples = Readonly<Record<string, Ref | Example>>;
interface Ref {
  readonly $ref: string;
}
type Content = Readonly<Record<string, { readonly schema: Schema; readonly examples: Examples }>>;
interface Parameter {
  readonly name: string;
  readonly in: string;
  readonly required?: boolean;
  readonly description: string;
  readonly schema: Schema;
  readonly example?: unknown;
  readonly examples?: Readonly<Record<string, Example>>;
}
interface ResponseObject {
  readonly description: string;
  readonly headers: Readonly<Record<string, Ref>>;
  readonly content: Content;
}
interface Operation {
  readonly operationId: string;
  readonly summary: string;
  readonly description?: string;
  readonly tags: readonly string[];
  readonly security?: readonly unknown[];
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: { readonly description: string; readonly content: Content };
  readonly responses: Readonly<Record<string, Ref | ResponseObject>>;
}
export interface Document {
  readonly 'x-simulated-root': string;
  readonly info: {
    readonly title: string;
    readonly version: string;
    readonly summary: string;
    readonly description: string;
  };
  readonly tags: readonly { readonly name: string; readonly description: string }[];
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: {
    readonly schemas: Readonly<Record<string, Schema>>;
    readonly headers: Readonly<Record<string, { readonly description: string; readonly schema: Schema }>>;
    readonly examples: Readonly<Record<string, Example>>;
    readonly responses: Readonly<Record<string, ResponseObject>>;
    readonly securitySchemes: Readonly<Record<string, { readonly description: string; readonly name?: string }>>;
  };
}

// HTML.

const ICON =
  'data:image/svg+xml,%3Csvg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"%3E%3Crect width="32" height="32" rx="7" fill="%230b5d57"/%3E%3Cpath d="M7 17l6 6L25 9" fill="none" stroke="white" stroke-width="3.4"/%3E%3C/svg%3E';

/** Text with `code` in it. */
const prose = (text: string): Html[] =>
  text.split('`').map((part, i) => (i % 2 === 1 ? html`<code>${part}</code>` : html`${part}`));

const lastOf = ($ref: string): string => $ref.slice($ref.lastIndexOf('/') + 1);

/** Limits that are shown by their names in the schema. */
const LIMITS = ['pattern', 'format', 'minLength', 'maxLength', 'minItems', 'maxItems', 'minimum', 'maximum'];

/** Leaves out the bounds of safe integers, which zod adds. */
function limitsOf(schema: Schema): string {
  const shown = LIMITS.filter((name) => name in schema && Math.abs(Number(schema[name])) !== Number.MAX_SAFE_INTEGER);
  return shown.map((name) => `, ${name} ${schema[name]}`).join('');
}

const joined = (parts: readonly Html[], separator: string): Html[] =>
  parts.flatMap((part, i) => (i === 0 ? [part] : [html`${separator}`, part]));

function typeOf(schema: Schema): Html | Html[] {
  if (schema.$ref !== undefined) return html`<a href="#schema.${lastOf(schema.$ref)}">${lastOf(schema.$ref)}</a>`;
  if (schema.anyOf !== undefined)
    return joined(
      schema.anyOf.map((one) => html`${typeOf(one)}`),
      ' or ',
    );
  if ('const' in schema) return html`<code>${JSON.stringify(schema.const)}</code>`;
  if (schema.enum !== undefined)
    return joined(
      schema.enum.map((one) => html`<code>${String(one)}</code>`),
      ', ',
    );
  if (schema.items !== undefined) return html`array of ${typeOf(schema.items)}${limitsOf(schema)}`;
  const types = schema.type === undefined ? ['anything'] : [schema.type].flat();
  return html`${types.join(' or ')}${limitsOf(schema)}`;
}

/** The members of a schema, and those of the schemas inside it. */
function membersOf(schema: Schema): Html {
  const { properties = {}, required = [], items, anyOf = [], additionalProperties } = schema;
  const members = Object.entries(properties).map(
    ([
      name,
      member,
    ]) => html`<dt><code>${name}</code> <span class="type">${typeOf(member)}${required.includes(name) ? ', required' : ''}</span></dt>
<dd>${prose(member.description ?? '')}${membersOf(member)}</dd>`,
  );
  const others = typeof additionalProperties === 'object' ? [additionalProperties] : [];
  const inside = [...(items === undefined ? [] : [items]), ...anyOf, ...others].map(membersOf);
  return members.length === 0 ? html`${inside}` : html`<dl>${members}</dl>${inside}`;
}

function exampleOf({ summary, value }: Example): Html {
  const text = typeof value === 'string' ? value : JSON.stringify(value, null, 2);
  return html`<details><summary>${prose(summary)}</summary><pre tabindex="0" role="group" aria-label="${summary}">${text}</pre></details>`;
}

/** `style`: CSS that holds no markup. */
export function htmlPage({ info, tags, paths, components, 'x-simulated-root': root }: Document, style: string): string {
  const operations = Object.entries(paths).flatMap(([path, byMethod]) =>
    Object.entries(byMethod).map(([method, operation]) => ({ path, method, operation })),
  );
  const tagged = (name: string) => operations.filter(({ operation }) => operation.tags.includes(name));

  /** Names of examples that the page already shows. */
  const shown = new Set<string>();
  const examplesOf = (examples: Examples): Html[] =>
    Object.values(examples).map((one) => {
      if (!('$ref' in one)) return exampleOf(one);
      const name = lastOf(one.$ref);
      const example = components.examples[name] as Example;
      if (shown.has(name)) return html`<p><a href="#example.${name}">${prose(example.summary)}</a></p>`;
      shown.add(name);
      return html`<div id="example.${name}">${exampleOf(example)}</div>`;
    });

  const contentOf = (content: Content): Html[] =>
    Object.entries(content).map(
      ([
        type,
        { schema, examples },
      ]) => html`<p><code>${type}</code>: <span class="type">${typeOf(schema)}</span>${schema.description === undefined ? '' : html`. ${prose(schema.description)}`}</p>
${membersOf(schema)}${examplesOf(examples)}`,
    );

  const parameterOf = ({ name, in: place, required, description, schema, example, examples = {} }: Parameter): Html => {
    const values = example === undefined ? Object.values(examples).map(({ value }) => value) : [example];
    return html`<dt><code>${name}</code> <span class="type">${place}, ${typeOf(schema)}${required === true ? ', required' : ''}</span></dt>
<dd>${prose(description)}. For example ${joined(
      values.map((value) => html`<code>${String(value)}</code>`),
      ' or ',
    )}</dd>`;
  };

  /** A success has its examples; an error has links to its codes, whose examples are at the end of the page. */
  function responseOf([status, response]: [string, Ref | ResponseObject]): Html {
    if ('$ref' in response) {
      const { content } = components.responses[lastOf(response.$ref)] as ResponseObject;
      const codes = Object.entries(content['application/json']?.examples ?? {}).map(
        ([code, one]) => html`<a href="#${lastOf((one as Ref).$ref)}"><code>${code}</code></a>`,
      );
      return html`<dt>${status}</dt><dd>${joined(codes, ', ')}</dd>`;
    }
    const headers = Object.keys(response.headers).map(
      (name) => html`<a href="#header.${name}"><code>${name}</code></a>`,
    );
    return html`<dt>${status}</dt><dd>${prose(response.description)}${contentOf(response.content)}<p>Headers: ${joined(headers, ', ')}</p></dd>`;
  }

  function operationOf({ path, method, operation }: (typeof operations)[number]): Html {
    const { operationId, summary, description, security, parameters = [], requestBody, responses } = operation;
    return html`<article id="${operationId}">
<h3><span class="method">${method.toUpperCase()}</span> <code>${path}</code></h3>
<p>${prose(summary)}${description === undefined ? '' : html`. ${prose(description)}`}</p>
${security?.length === 0 ? html`<p>No API key is needed.</p>` : ''}
${parameters.length === 0 ? '' : html`<h4>Parameters</h4><dl>${parameters.map(parameterOf)}</dl>`}
${requestBody === undefined ? '' : html`<h4>Request</h4><p>${prose(requestBody.description)}</p>${contentOf(requestBody.content)}`}
<h4>Responses</h4><dl class="responses">${Object.entries(responses).map(responseOf)}</dl>
</article>`;
  }

  const errorNames = Object.values(components.responses).flatMap(({ content }) =>
    Object.values(content).flatMap(({ examples }) => Object.values(examples).map((one) => lastOf((one as Ref).$ref))),
  );
  const errors = Object.entries(components.examples).filter(([name]) => errorNames.includes(name));
  const errorOf = ([name, one]: [string, Example]): Html => {
    const [, code, kind] = name.split('.');
    return html`<dt id="${name}"><code>${code}</code>${kind === undefined ? '' : ` (${kind})`}</dt><dd>${exampleOf(one)}</dd>`;
  };
  const schemaOf = ([name, schema]: [string, Schema]): Html => html`<article id="schema.${name}">
<h3><code>${name}</code></h3><p>${prose(schema.description ?? '')}</p>${membersOf(schema)}</article>`;

  const linkTo = ({ path, method, operation }: (typeof operations)[number]): Html =>
    html`<li><a href="#${operation.operationId}"><span class="method">${method.toUpperCase()}</span> ${path}</a></li>`;

  const page = html`<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${info.title} API</title>
<link rel="icon" href="${ICON}">
<style>${raw(style)}</style>
</head>
<body>
<a class="skip" href="#content">To the content</a>
<header><h1>${info.title} API</h1><p>${prose(info.summary)} Version ${info.version}. <a href="/openapi.json">openapi.json</a>, <a href="/">chat</a></p></header>
<nav aria-label="Routes">
${tags.map(({ name }) => html`<h2>${name}</h2><ul>${tagged(name).map(linkTo)}</ul>`)}
<h2>More</h2><ul><li><a href="#keys">API keys</a></li><li><a href="#errors">Errors</a></li><li><a href="#schemas">Schemas</a></li><li><a href="#headers">Headers</a></li></ul>
</nav>
<main id="content" tabindex="-1">
<p>${prose(info.description)}</p>
${exampleOf({ summary: 'The test root of the examples', value: root })}
${tags.map(({ name, description }) => html`<section><h2>${name}</h2><p>${prose(description)}</p>${tagged(name).map(operationOf)}</section>`)}
<section id="keys"><h2>API keys</h2><dl>${Object.values(components.securitySchemes).map(
    ({ name, description }) =>
      html`<dt><code>${name === undefined ? 'authorization: Bearer KEY' : `${name}: KEY`}</code></dt><dd>${prose(description)}</dd>`,
  )}</dl></section>
<section id="errors"><h2>Errors</h2><p>Every error has the shape of <a href="#schema.Error">Error</a>.</p><dl>${errors.map(errorOf)}</dl></section>
<section id="schemas"><h2>Schemas</h2>${Object.entries(components.schemas).map(schemaOf)}</section>
<section id="headers"><h2>Headers</h2><dl>${Object.entries(components.headers).map(
    ([name, { description, schema }]) =>
      html`<dt id="header.${name}"><code>${name}</code> <span class="type">${typeOf(schema)}</span></dt><dd>${prose(description)}</dd>`,
  )}</dl></section>
</main>
</body>
</html>
`;
  return `<!doctype html>\n${page}`;
}
