import { describe, expect, it } from 'vitest';
import { loadDemoConfig } from '../../../demo/config.ts';
import { readDemoOptions } from '../../../demo/options.ts';
import { OptionError, readTwinOptions } from '../../../demo/twin/options.ts';

describe('the options of the simulated machine', () => {
  it('say what it pretends to be; without any it is one GPU and a processor that take no time', () => {
    expect(readTwinOptions([])).toEqual({
      gpus: 1,
      collection_ms: 0,
      cpu: 'SEV_SNP',
      cpu_ms: 0,
      root_dir: `${process.cwd()}/run/simulated-root`,
    });
    const given = ['--gpus', '8', '--collection-ms=700', '--cpu', 'TDX', '--cpu-ms', '30', '--root-dir', '/a/b'];
    expect(readTwinOptions(given)).toEqual({ gpus: 8, collection_ms: 700, cpu: 'TDX', cpu_ms: 30, root_dir: '/a/b' });
  });

  it.each([
    [['--gpus', '0'], /^--gpus is a whole number from 1 to 16$/],
    [['--gpus', '17'], /^--gpus is/],
    [['--gpus', '1e1'], /^--gpus is/],
    [['--collection-ms', 'fast'], /^--collection-ms is a whole number from 0 to 600000$/],
    [['--collection-ms', '600001'], /^--collection-ms is/],
    [['--cpu-ms', ''], /^--cpu-ms is/],
    [['--cpu', 'tdx'], /^--cpu is SEV_SNP or TDX$/],
    [['--root-dir', ''], /^--root-dir names a folder$/],
    [['--gpus'], /^the options of the simulated machine are --gpus, /],
    [['--gpu', '1'], /^the options of the simulated machine are --gpus, /],
    [['8'], /^the options of the simulated machine are --gpus, /],
  ])('that are wrong are named in one line: %j', (args, line) => {
    expect(() => readTwinOptions(args)).toThrow(OptionError);
    expect(() => readTwinOptions(args)).toThrow(line);
  });

  it('are handed on by npm start, beside --model, and only to a simulated machine', () => {
    const options = readDemoOptions(['--gpus', '2', '--model', '--cpu=TDX']);
    expect(options).toEqual({ model: true, twin: ['--gpus', '2', '--cpu=TDX'] });
    expect(loadDemoConfig({}, options)).toMatchObject({ simulated: true, options });
    expect(() => loadDemoConfig({ ATTESTER: 'native' }, options)).toThrow(/^--gpus is for the simulated machine/);
    expect(() => readDemoOptions(['--gpus', '0'])).toThrow(/^--gpus is/);
    expect(() => readDemoOptions(['--help'])).toThrow(/^the options are --model, --gpus, /);
  });
});
